package dedup

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Most claims in bulk are of keys that nobody ever held, and most of them end as
// they were granted. For these there are scripts that take many at once, which
// costs Redis and this process half of what they cost one by one. What is not so
// simple is left as it is, for the scripts that know all cases.

// grantScript grants claims of keys that nobody ever held.
//
//	KEYS -> the claims
//	ARGV -> for each who, JSON of the claim, request name, lease in µs (0: none)
//	Returns the time; then for each 1 where it was granted under that as its
//	token, 0 where it was left as it is.
var grantScript = redis.NewScript(clock + granting + `
local granted = {now}
for i, claim in ipairs(KEYS) do
  local fresh = redis.call('EXISTS', claim) == 0
  if fresh then grant(claim, ARGV[4 * i - 3], ARGV[4 * i - 2], ARGV[4 * i - 1], tonumber(ARGV[4 * i])) end
  granted[i + 1] = fresh and 1 or 0
end
return granted`)

// finishScript ends claims that are as grantScript left them, of no request.
//
//	KEYS -> the claims
//	ARGV -> for each who, token, state, window in µs, JSON of the result
//	Returns the time; then for each 1 where it was ended, 0 where it was left as
//	it is.
var finishScript = redis.NewScript(clock + finishing + `
local finished = {now}
for i, claim in ipairs(KEYS) do
  local old = redis.call('HMGET', claim, 'state', 'who', 'token', 'request', 'generation')
  local same = old[1] == 'running' and old[2] == ARGV[5 * i - 4] and old[3] == ARGV[5 * i - 3] and old[4] == '' and not old[5]
  if same then finish(claim, ARGV[5 * i - 2], tonumber(ARGV[5 * i - 1]), ARGV[5 * i], '') end
  finished[i + 1] = same and 1 or 0
end
return finished`)

// atOnce is how many one of these scripts takes: Redis does nothing else meanwhile.
const atOnce = 32

// runQuick runs one of these scripts. The answer to each call is the time where it
// was done, and nil where it was left as it is.
func (c *Claims) runQuick(ctx context.Context, script *redis.Script, calls []call) ([][]any, error) {
	answers := make([][]any, len(calls))
	if _, ok := c.rdb.(*redis.ClusterClient); ok {
		return answers, nil // keys of one script are in one slot
	}
	groups := make([]call, 0, (len(calls)+atOnce-1)/atOnce)
	for some := range slices.Chunk(calls, atOnce) {
		group := call{keys: make([]string, 0, len(some)), args: make([]any, 0, len(some)*len(some[0].args))}
		for _, each := range some {
			group.keys, group.args = append(group.keys, each.keys...), append(group.args, each.args...)
		}
		groups = append(groups, group)
	}
	got, err := c.runAll(ctx, script, groups)
	if err != nil {
		return nil, err
	}
	for i := range answers {
		group, place := got[i/atOnce], 1+i%atOnce
		if place >= len(group) {
			return nil, errDamaged
		}
		if group[place] == int64(1) {
			answers[i] = group[:1]
		}
	}
	return answers, nil
}
