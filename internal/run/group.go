package run

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxGroupPart bounds the name of a group in its workflow id, in bytes: ids have
// at most 1,000 characters in Temporal.
const maxGroupPart = 200

// GroupID builds the workflow id of a concurrency group:
// tenant/project/group/<name>. A long name is cut, and its hash tells it from
// others that begin alike.
func GroupID(tenant, project, name string) string {
	short := part(name)
	if len(short) > maxGroupPart {
		sum := sha256.Sum256([]byte(name))
		hash := hex.EncodeToString(sum[:16])
		short = short[:maxGroupPart-len(hash)-1] + "~" + hash
	}
	return strings.Join([]string{part(tenant), part(project), "group", short}, "/")
}

// QuotaGroup is the group of the runs of a tenant that has a quota. It belongs to
// no project.
const QuotaGroup = "quota:runs"

// BatchID builds the workflow id of a batch of light tasks:
// tenant/project/batch/<name>.
func BatchID(tenant, project, name string) string {
	return strings.Join([]string{part(tenant), part(project), "batch", part(name)}, "/")
}

// TaskID builds the id of the standalone activity that runs a light task by
// itself: tenant/project/task/<name>.
func TaskID(tenant, project, name string) string {
	return strings.Join([]string{part(tenant), part(project), "task", part(name)}, "/")
}
