package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The keys of the audit in Redis. All of one tenant carry the same hash tag, so
// that Redis Cluster keeps them in one slot and one script writes them all.
//
//	belay:audit-tenants              set of the tenants that ever had a key here
//	belay:audit:{<tenant>}           stream of entries, each a field "e" of JSON
//	belay:audit:{<tenant>}:seen      sorted set: marks of deliveries, by time
//	belay:audit:{<tenant>}:c:<hour>  hash of counts in that hour since 1970
//	belay:audit:{<tenant>}:d:<day>   hash of the same counts in that day since 1970
//	belay:audit-overhead:<hour>      hash: how long claims took in that hour
const (
	tenantsKey     = "belay:audit-tenants"
	overheadPrefix = "belay:audit-overhead:"
	entryField     = "e"
)

func streamKey(tenant string) string {
	// A brace would end the hash tag early.
	return "belay:audit:{" + strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D").Replace(tenant) + "}"
}

func seenKey(tenant string) string      { return streamKey(tenant) + ":seen" }
func countsPrefix(tenant string) string { return streamKey(tenant) + ":c:" }

func daysPrefix(tenant string) string { return streamKey(tenant) + ":d:" }

func hourOf(t time.Time) int64 { return t.Unix() / 3600 }
func dayOf(t time.Time) int64  { return t.Unix() / 86400 }

// countsKey is that of an hour, or of a day.
func countsKey(prefix string, n int64) string { return prefix + strconv.FormatInt(n, 10) }

// mark names a delivery and the kind of what was decided about it: one that
// waited as a duplicate and then took over a dead owner is two entries.
func (e *Entry) mark() string {
	id := e.Delivery
	if id == "" {
		id = e.RequestID
	}
	if id == "" {
		return ""
	}
	space, kind := e.Pipeline, string(e.Decision)
	if e.Node != "" {
		space = "" // the keys of steps are the project's
	}
	if e.Decision.Blocked() {
		kind = "blocked"
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{e.Project, space, e.Key, id, kind}, "\x00")))
	return hex.EncodeToString(sum[:12])
}

// writeScript adds an entry and counts it, unless its delivery was seen.
//
//	KEYS[1] -> the stream
//	KEYS[2] -> the marks that were seen
//	ARGV    -> mark ('' is always new), the entry, most entries, milliseconds
//	           that entries are kept (0: others see to that), field to count,
//	           field to count instead where there are too many, most fields,
//	           prefix of the counts by the hour, milliseconds that these are
//	           kept, the same two of the counts by the day
//	Returns how many entries there are now, 0 where it was seen before.
var writeScript = redis.NewScript(`
local mark, most, keep = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local t = redis.call('TIME')
local sec = tonumber(t[1])
local ms = sec * 1000 + math.floor(tonumber(t[2]) / 1000)
if mark ~= '' and redis.call('ZADD', KEYS[2], 'NX', ms, mark) == 0 then return 0 end
redis.call('XADD', KEYS[1], 'MAXLEN', '~', most, '*', 'e', ARGV[2])
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -most - 1)
if keep > 0 then
  redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f', ms - keep))
  redis.call('PEXPIRE', KEYS[1], keep)
  redis.call('PEXPIRE', KEYS[2], keep)
end
local function count(key, kept)
  local field = ARGV[5]
  if redis.call('HEXISTS', key, field) == 0 and redis.call('HLEN', key) >= tonumber(ARGV[7]) then
    field = ARGV[6]
  end
  redis.call('HINCRBY', key, field, 1)
  redis.call('PEXPIRE', key, kept)
end
count(ARGV[8] .. math.floor(sec / 3600), ARGV[9])
count(ARGV[10] .. math.floor(sec / 86400), ARGV[11])
return redis.call('XLEN', KEYS[1])`)

// countScript adds to counts.
//
//	KEYS[1] -> the counts
//	ARGV    -> most fields, milliseconds that counts are kept, field to count
//	           instead where there are too many, then pairs of field and number
var countScript = redis.NewScript(`
for i = 4, #ARGV, 2 do
  local field = ARGV[i]
  if redis.call('HEXISTS', KEYS[1], field) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[1]) then
    field = ARGV[3]
  end
  redis.call('HINCRBY', KEYS[1], field, ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)
