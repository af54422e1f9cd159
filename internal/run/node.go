package run

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Leg is one combination of a matrix: its keys and their values.
type Leg map[string]string

// String is the leg as it stands in a node path: keys sorted, "k=v" joined by
// commas, with ] , = / and % percent-encoded so that paths stay unambiguous.
func (l Leg) String() string {
	parts := make([]string, 0, len(l))
	for _, k := range slices.Sorted(maps.Keys(l)) {
		parts = append(parts, escape(k)+"="+escape(l[k]))
	}
	return strings.Join(parts, ",")
}

// StageNode is the path of a stage, or of one leg of it: "build" or
// "build[arch=arm64,os=linux]".
func StageNode(stage string, leg Leg) string {
	if len(leg) == 0 {
		return stage
	}
	return stage + "[" + leg.String() + "]"
}

// StepNode is the path of a step of a stage: "build/compile". The pipeline's
// own finally steps have the stage path "finally".
func StepNode(stageNode, step string) string {
	return stageNode + "/" + step
}

// FinallyStage is the stage path under which the finally steps of a pipeline
// run. No stage of a file may bear this name.
const FinallyStage = "finally"

// ID builds the workflow id of a run that has no de-duplication key:
// tenant/project/pipeline/r/<request id>.
func ID(tenant, project, pipeline, requestID string) string {
	return strings.Join([]string{part(tenant), part(project), part(pipeline), "r", ascii(requestID)}, "/")
}

// KeyedID builds the workflow id of a run that has a de-duplication key:
// tenant/project/pipeline/k/<key>.
func KeyedID(tenant, project, pipeline, key string) string {
	return strings.Join([]string{part(tenant), part(project), part(pipeline), "k", ascii(ShortKey(key))}, "/")
}

// ShortKey is a de-duplication key as ids and search attributes hold it: one
// that is long is cut, and told from others by a hash.
func ShortKey(key string) string {
	const most, head, hash = 200, 160, 16
	if len(key) <= most {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return strings.ToValidUTF8(key[:head], "") + "~" + hex.EncodeToString(sum[:hash])
}

// ChildID builds the workflow id of a stage. It holds the run key, so that a
// later run under the same id never meets the stages of an earlier one.
func ChildID(id, runKey, stageNode string) string {
	return id + "/" + runKey + "/" + ascii(stageNode)
}

// escape percent-encodes what would break a node path apart.
func escape(s string) string {
	const apart = "%][,=/"
	if !strings.ContainsAny(s, apart) {
		return s
	}
	return strings.NewReplacer("%", "%25", "]", "%5D", "[", "%5B", ",", "%2C", "=", "%3D", "/", "%2F").Replace(s)
}

// ascii percent-encodes everything in s that is not printable ASCII, spaces and
// the percent sign: a workflow id outside of ASCII makes every Temporal call
// fail.
func ascii(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c > ' ' && c < 0x7f && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// part is one part of an id: a slash in it is none of the id's.
func part(s string) string { return strings.ReplaceAll(ascii(s), "/", "%2F") }

// The tenant and project of a run that names none.
const (
	DefaultTenant  = "default"
	DefaultProject = "default"
)

// Within reports whether node is a stage, or lies in it.
func Within(node, stage string) bool {
	rest, ok := strings.CutPrefix(node, stage)
	return ok && (rest == "" || rest[0] == '/')
}

// Slug is what of a node a person can recognise in the name of a file or a
// container: lower-case letters, digits and dashes, at most so many. Two nodes
// may have one.
func Slug(node string, most int) string {
	var b strings.Builder
	for _, r := range strings.ToLower(node) {
		if b.Len() >= most {
			break
		}
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	if s := strings.Trim(b.String(), "-"); s != "" {
		return s
	}
	return "node"
}
