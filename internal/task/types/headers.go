package types

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"

	"belay.run/internal/task"
	"belay.run/internal/version"
)

// headerTrace is the header of a W3C trace context.
const headerTrace = "Traceparent"

// ownHeaders are those that a request's other parts decide.
var ownHeaders = []string{ // read only
	"Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// decided reports whether a header's value is not for a secret: Belay sets it, or
// it says where the request goes, and then follows redirects there.
func decided(name string) bool {
	canonical := http.CanonicalHeaderKey(name)
	return canonical == "Host" || slices.Contains(ownHeaders, canonical)
}

// readHeaders reads a parameter that is a table of headers.
func readHeaders(a *task.Args, name string) http.Header {
	table := a.Table(name)
	headers := make(http.Header, len(table)+3)
	if len(table) == 0 {
		return headers
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		canonical := http.CanonicalHeaderKey(key)
		switch {
		case !isToken(key):
			a.Wrong(name, "%.64q is no name of a header", key)
		case slices.Contains(ownHeaders, canonical):
			a.Wrong(name, "%s: it is set by Belay itself", canonical)
		case headers[canonical] != nil:
			a.Wrong(name, "%s: it is given twice", canonical)
		case !isFieldValue(table[key]):
			a.Wrong(name, "%s: its value holds a line break or another control character", canonical)
		}
		headers[canonical] = []string{table[key]}
	}
	return headers
}

// isToken reports whether s can be the name of a header.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// isFieldValue reports whether s can be the value of a header.
func isFieldValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// safeMethods change nothing at the target.
func safeMethod(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// addContext says in a request's headers who sends it, within which trace, and
// for what work: whoever is asked twice can tell. What the task itself gives
// stays.
func addContext(h http.Header, method string, o task.Origin) {
	set := func(name, value string) {
		if h[name] == nil && value != "" {
			h[name] = []string{value}
		}
	}
	set("User-Agent", "belay/"+version.String())
	if plain(o.TraceParent) {
		set(headerTrace, o.TraceParent)
	}
	if safeMethod(method) || o.IdempotencyKey == "" {
		return
	}
	key := o.IdempotencyKey
	if !plain(key) || len(key) > 255 {
		// It is made of names and keys, in which there may be anything.
		sum := sha256.Sum256([]byte(key))
		key = hex.EncodeToString(sum[:])
	}
	set("Idempotency-Key", key)
}

// plain reports whether s is printable ASCII.
func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
