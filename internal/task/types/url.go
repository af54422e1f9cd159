package types

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"belay.run/internal/outbound"
	"belay.run/internal/task"
)

// readURL reads a parameter that is a URL of one of the schemes.
func readURL(a *task.Args, name string, schemes ...string) *url.URL {
	return checkURL(a, name, a.Text(name, ""), schemes...)
}

// checkURL reads the text of a parameter that is a URL. Of a wrong one it returns
// an empty URL.
func checkURL(a *task.Args, name, text string, schemes ...string) *url.URL {
	if text == "" {
		if a.Has(name) {
			a.Wrong(name, "it is empty, expected a URL such as %s://host/path", schemes[0])
		}
		return &url.URL{}
	}
	u, err := parseURL(text)
	switch {
	case err != nil:
		a.Wrong(name, "%s", err)
	case !slices.Contains(schemes, u.Scheme):
		a.Wrong(name, "found the scheme %.32q, expected %s", u.Scheme, strings.Join(schemes, ", "))
	default:
		return u
	}
	return &url.URL{}
}

// parseURL reads a URL that names a host. Its errors show nothing of the text,
// which may hold a password.
func parseURL(text string) (*url.URL, error) {
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, errors.New("it holds a space or a control character, expected a URL")
	}
	u, err := url.Parse(text)
	if err != nil {
		reason := err
		if at, ok := errors.AsType[*url.Error](err); ok {
			reason = at.Err
		}
		if strings.Contains(reason.Error(), "userinfo") || strings.Contains(text, "@") {
			reason = errors.New("it cannot be read; is its password escaped?")
		}
		return nil, fmt.Errorf("expected a URL: %w", reason)
	}
	switch {
	case u.Scheme == "":
		return nil, errors.New("it has no scheme, expected a URL such as https://host/path")
	case u.Hostname() == "":
		return nil, errors.New("it names no host, expected a URL such as https://host/path")
	}
	return u, checkPort(u.Port())
}

func checkPort(port string) error {
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
		return fmt.Errorf("found the port %.16q, expected 1 to 65535", port)
	}
	return nil
}

// readAddress reads a parameter that is host:port.
func readAddress(a *task.Args, name string) string {
	text := a.Text(name, "")
	host, port, err := net.SplitHostPort(text)
	if !a.Has(name) {
		return ""
	}
	if err != nil || host == "" || port == "" || checkPort(port) != nil || strings.ContainsAny(host, " /@") {
		a.Wrong(name, "found %.64q, expected host:port", text)
	}
	return text
}

// address is host:port of a URL, with the usual port where it names none, in the
// form that limits and grants go by.
func address(u *url.URL, usual string) string {
	if u.Host == "" {
		return ""
	}
	return outbound.Address(u.Hostname(), cmp.Or(u.Port(), usual))
}

// dialAddress is the same as it is dialed.
func dialAddress(u *url.URL, usual string) string {
	return net.JoinHostPort(outbound.Host(u.Hostname()), cmp.Or(u.Port(), usual))
}

// httpAddress is host:port of a URL of http or https.
func httpAddress(u *url.URL) string {
	if u.Scheme == "https" {
		return address(u, "443")
	}
	return address(u, "80")
}

// shown is a URL for people. A password, a token in the place of a user and the
// values of a query are secret more often than not, so none of them is shown.
func shown(u *url.URL) string {
	s := u.Scheme + "://"
	if u.User != nil {
		s += "***@"
	}
	s += u.Host + u.EscapedPath()
	if u.RawQuery == "" {
		return s
	}
	parts := strings.Split(u.RawQuery, "&")
	for i, part := range parts {
		if name, _, ok := strings.Cut(part, "="); ok {
			parts[i] = name + "=***"
		} else {
			parts[i] = "***"
		}
	}
	return s + "?" + strings.Join(parts, "&")
}
