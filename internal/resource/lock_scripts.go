package resource

import (
	"strings"

	"github.com/redis/go-redis/v9"
)

// A lock is three keys of one hash tag, {tenant/project/name}:
//
//	belay:lock:{…}     hash: owner, who (for people), until (end of the lease, in
//	                   µs of Redis's clock), token, seq (last place in the queue)
//	belay:lock:{…}:q   sorted set: those who wait, by their place
//	belay:lock:{…}:w   hash: of each of them since when it has asked without a
//	                   gap, and until when it keeps its place, as since|until
//
// A lock that is free keeps its token for an hour, so that the next is higher
// even where the server's clock was set back.
func lockKeys(e *Entry) []string {
	r := strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D", "/", "%2F")
	key := "belay:lock:{" + r.Replace(e.Tenant) + "/" + r.Replace(e.Project) + "/" + r.Replace(e.Name) + "}"
	return []string{key, key + ":q", key + ":w"}
}

// lockTools begins each script. All deadlines are Redis's own.
const lockTools = `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lock, queue, waiters, me = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local hour, week = 3600000, 604800000
local function text(n) return string.format('%.0f', n) end
local function number(field) return tonumber(redis.call('HGET', lock, field) or '') or 0 end
local function asked(who)
  local since, till = string.match(redis.call('HGET', waiters, who) or '', '^(%d+)|(%d+)$')
  return tonumber(since or '0'), tonumber(till or '0')
end
local function leave(who)
  redis.call('ZREM', queue, who)
  redis.call('HDEL', waiters, who)
end
local function hold(who, lease, token)
  redis.call('HSET', lock, 'owner', me, 'who', who, 'until', text(now + lease), 'token', text(token))
  redis.call('PEXPIRE', lock, week)
end
`

// lockScript takes a lock, or a place in its queue.
//
//	ARGV -> holder, who, lease, lease of a place, how long to have asked before
//	        an expired lock is taken, all in µs; 1 to take none that nobody holds
//	Returns the token, 0, and who it was taken from, if anybody, where it is held;
//	else 0, the place, and who holds it.
var lockScript = redis.NewScript(lockTools + `
local who, lease, keep, settle = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local owner = redis.call('HGET', lock, 'owner')
if owner == me then
  local token = number('token')
  hold(who, lease, token)
  leave(me)
  return {text(token), '0', ''}
end
local since, till = asked(me)
if till < now then since = now end
if not redis.call('ZSCORE', queue, me) then
  redis.call('ZADD', queue, redis.call('HINCRBY', lock, 'seq', 1), me)
end
redis.call('HSET', waiters, me, text(since) .. '|' .. text(now + keep))
redis.call('PEXPIRE', lock, week)
redis.call('PEXPIRE', queue, hour)
redis.call('PEXPIRE', waiters, hour)
-- Those before me who do not wait any more. Whoever has not asked for long itself
-- says so of nobody: Redis may have been away, for all of them.
while now - since >= keep do
  local head = redis.call('ZRANGE', queue, 0, 0)[1]
  if head == me then break end
  local _, until_ = asked(head)
  if until_ >= now then break end
  leave(head)
end
local place = redis.call('ZRANK', queue, me)
local expired = owner and number('until') < now and now - since >= settle
if place == 0 and (owner and expired or not owner and ARGV[6] ~= '1') then
  local from = owner and redis.call('HGET', lock, 'who') or ''
  local token = math.max(number('token') + 1, now)
  hold(who, lease, token)
  leave(me)
  return {text(token), '0', from}
end
return {'0', text(place + 1), redis.call('HGET', lock, 'who') or ''}`)

// unlockScript gives a lock, or a place in its queue, back. The token is raised,
// so that a holder who was stopped meanwhile cannot put the lock back.
//
//	ARGV -> holder; 1 to undo a grant: the token is forgotten, not raised
var unlockScript = redis.NewScript(lockTools + `
leave(me)
local owner, mine = redis.call('HGET', lock, 'owner'), 0
if owner == me then
  redis.call('HDEL', lock, 'owner', 'who', 'until')
  if ARGV[2] == '1' then redis.call('HDEL', lock, 'token')
  else redis.call('HSET', lock, 'token', text(number('token') + 1)) end
  owner, mine = false, 1
end
if not owner and redis.call('EXISTS', queue) == 0 then redis.call('PEXPIRE', lock, hour) end
return mine`)

// renewScript renews the lease, and puts a lock back that Redis has lost.
//
//	ARGV -> holder, who, lease in µs, token
//	Returns 0 where the lock is another's, or was.
var renewScript = redis.NewScript(lockTools + `
local owner, token = redis.call('HGET', lock, 'owner'), tonumber(ARGV[4])
if owner ~= me and (owner or number('token') > token) then return 0 end
hold(ARGV[2], tonumber(ARGV[3]), token)
return 1`)
