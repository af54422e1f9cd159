package dedup

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The keys of claims in Redis. All of one claim carry the same hash tag, so that
// Redis Cluster keeps them in one slot and one script may reach them all.
//
//	belay:claim:{<tag>}         hash: the claim, as scripts.go describes
//	belay:claim:{<tag>}:r:<id>  string: the run that request <id> began
//	belay:epoch                 when Redis began to remember
//	belay:{claims}…             channels of the local tiers
const (
	claimPrefix  = "belay:claim:{"
	claimPattern = "belay:claim:{*}"
	epochKey     = "belay:epoch"
)

const (
	// MaxKey is how many bytes the name of a key may have.
	MaxKey = 1024
	// maxRequestID is how many bytes a request id may have.
	maxRequestID = 1024
	// plainKey and plainID are how long what stands in a Redis key as it is may
	// be; what is longer is hashed.
	plainKey = 200
	plainID  = 80
)

// tagged keeps what people write from ending a hash tag or a part of a key.
var tagged = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D", "/", "%2F") //nolint:gochecknoglobals // never changes

// redisKey is where the claim under k is kept.
func (k Key) redisKey() string {
	space := "p"
	if k.Pipeline == "" {
		space = "s"
	}
	tag := space + "/" + tagged.Replace(k.Tenant) + "/" + tagged.Replace(k.Project) + "/" +
		tagged.Replace(k.Pipeline) + "/" + tagged.Replace(k.Name)
	if len(tag) > plainKey {
		tag = space + "/" + digest(tag)
	}
	return claimPrefix + tag + "}"
}

// String is the key as people read it.
func (k Key) String() string {
	if k.Pipeline == "" {
		return fmt.Sprintf("%s/%s step key %q", k.Tenant, k.Project, k.Name)
	}
	return fmt.Sprintf("%s/%s/%s key %q", k.Tenant, k.Project, k.Pipeline, k.Name)
}

func (k Key) check() error {
	switch {
	case k.Name == "":
		return errors.New("a claim needs a key")
	case len(k.Name) > MaxKey:
		return fmt.Errorf("a key has at most %d bytes, this one %d", MaxKey, len(k.Name))
	}
	return nil
}

// requestName is the request id as it stands at the end of a Redis key.
func requestName(id string) string {
	name := tagged.Replace(id)
	if len(name) > plainID {
		return "h/" + digest(name)
	}
	return name
}

// digest is the sha256 of s in hex.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// idempotencyLen is the length of an idempotency key: 128 bits in hex.
const idempotencyLen = 32

// IdempotencyKey is the key under which what holds the claim asks others to do
// something once: the same over all attempts and a takeover, another one for a
// retry that somebody means.
func IdempotencyKey(r Record) string {
	return idempotent("claim", r.Key.Tenant, r.Key.Project, r.Key.Pipeline, r.Key.Name, strconv.Itoa(r.Generation))
}

// RunIdempotencyKey is the idempotency key of a step without a business key: the
// same over all attempts of a node of a run.
func RunIdempotencyKey(runKey, node string) string { return idempotent("run", runKey, node) }

func idempotent(parts ...string) string {
	const usual = 160 // no more than that needs no memory of its own
	list := make([]byte, 0, usual)
	for _, p := range parts { // with their lengths, so that no two lists read alike
		list = strconv.AppendInt(list, int64(len(p)), 10)
		list = append(append(list, ':'), p...)
	}
	sum := sha256.Sum256(list)
	return hex.EncodeToString(sum[:idempotencyLen/2])
}
