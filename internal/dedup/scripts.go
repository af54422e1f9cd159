package dedup

import (
	"fmt"

	"github.com/redis/go-redis/v9"
)

// A claim is a hash:
//
//	state         running, completed, failed, canceled or released
//	who           the owner: run key, slash, node
//	token         fencing token; it only grows, whatever happens to the claim
//	generation    how many claims under the key came to an end before this one;
//	              absent where there was none and no takeover
//	claim         JSON of the key, the owner, the request and the fingerprint
//	request       the request id as it stands in the key of its run
//	died          1 where it ended as canceled since its owner was dead: whoever
//	              claims next goes on in its generation
//	announced     1 where it was granted over a completed one inside its window
//	claimed_at ended_at until   in µs of Redis's clock; until is the end of the
//	              lease, or of the window; claimed_at may be absent: the token
//	result        JSON of the result
//
// A field that has no value is empty or absent. Under the key of a request id is,
// once the run has ended that the request began, a list of the fields of the
// claim then.
//
// A running claim does not expire in Redis: only what proves its owner dead may
// take it away. One that has ended stays beyond its window, so that the token and
// the generation go on growing.
//
// All deadlines are Redis's own: no worker's clock decides. Each script first
// decides, then writes, beginning with what a full Redis refuses: so it does all
// or nothing.

// clock begins each script.
const clock = `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local claim = KEYS[1]
`

// granting claims a key that nobody ever held: it is claimed by as little as can be,
// since that is what most claims are.
const granting = `
local stamp = string.format('%.0f', now)
local function grant(claim, who, json, name, lease)
  redis.call('HSET', claim, 'state', 'running', 'who', who, 'token', stamp, 'claim', json,
    'request', name, 'until', lease > 0 and string.format('%.0f', now + lease) or '')
end
`

// finishing ends a claim.
var finishing = fmt.Sprintf(`
local stamp = string.format('%%.0f', now)
local function finish(claim, ending, window, result, died)
  redis.call('HSET', claim, 'state', ending, 'ended_at', stamp, 'result', result,
    'until', ending == 'completed' and string.format('%%.0f', now + window) or '', 'died', died)
  redis.call('PEXPIRE', claim, string.format('%%.0f', math.floor(window / 1000) + %d))
end
`, keepFor.Milliseconds())

// tools is what scripts share.
var tools = fmt.Sprintf(`
local late, keep, keeprun, channel = %d, %d, %d, '%s'
local function text(n) return string.format('%%.0f', n) end
local function fields(flat)
  local f = {}
  for i = 1, #flat, 2 do f[flat[i]] = flat[i + 1] end
  return f
end
local function runof(name) return claim .. ':r:' .. name end
-- Keeps for the request that began a run how that ended.
local function note(name, who)
  if not name or name == '' then return end
  local past = redis.call('GET', runof(name))
  if past and fields(cjson.decode(past)).who ~= who then return end
  redis.call('SET', runof(name), cjson.encode(redis.call('HGETALL', claim)), 'PX', keeprun)
end
`, lateFor.Microseconds(), keepFor.Milliseconds(), keepRequestFor.Milliseconds(), channel)

// claimScript decides a claim.
//
//	KEYS[1] -> the claim
//	ARGV    -> who, JSON of the claim, request name, lease in µs (0: none), time
//	           of the request in µs (0: now), JSON of the key for a rerun or '',
//	           token of a dead owner (0: none), 1 if an end answers requests made
//	           before it
//	Returns the time where nobody ever held it: the claim is granted under that
//	as its token. Else decision and time; then token, generation, the times of the claim and
//	of the end of its lease and 1 if it was announced, where the claimer runs;
//	else the record that blocks.
var claimScript = redis.NewScript(clock + granting + `
local all = redis.call('HGETALL', claim)
local who, json, name, lease = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if #all == 0 then
  grant(claim, who, json, name, lease)
  return now
end
` + tools + `
local at, rerun, dead = tonumber(ARGV[5]), ARGV[6] ~= '', tonumber(ARGV[7])
local old = fields(all)
local state, token, generation = old.state, tonumber(old.token), tonumber(old.generation or 0)
local ended = tonumber(old.ended_at or '') or 0
local inside = state == 'completed' and tonumber(old['until']) > now

local function hold(decision, claimed, announced)
  local token, till = math.max(token + 1, now), lease > 0 and now + lease or 0
  redis.call('HSET', claim, 'state', 'running', 'who', who, 'token', text(token), 'claim', json, 'request', name,
    'announced', announced and '1' or '', 'claimed_at', text(claimed), 'ended_at', '', 'died', '', 'until', till > 0 and text(till) or '', 'result', '')
  if decision == 'granted' then
    redis.call('HSET', claim, 'generation', generation)
    redis.call('PERSIST', claim)
    if name ~= '' then redis.call('DEL', runof(name)) end
    if announced then redis.call('PUBLISH', channel, ARGV[6]) end
  end
  return {decision, now, {token, generation, claimed, till, announced and 1 or 0}}
end
local function bury() -- a dead owner's claim, which ends without it
  redis.call('HSET', claim, 'state', 'canceled', 'ended_at', text(now), 'until', '')
  redis.call('PEXPIRE', claim, keep)
  note(old.request, old.who)
end
local function sameRun(a, b) return string.match(a, '^[^/]*') == string.match(b, '^[^/]*') end

if old.who == who then
  if state == 'running' then return hold('resumed', tonumber(old.claimed_at or token), old.announced == '1') end
  if state == 'completed' then return {'done', now, all} end
end
local dies = state == 'running' and token == dead

-- A request id means the run that it began, whatever became of it.
if state == 'running' and name ~= '' and name == old.request and not sameRun(who, old.who) then
  if not dies then return {'in_flight', now, all} end
  bury()
  return {'redelivered', now, redis.call('HGETALL', claim)}
end
local past = name ~= '' and redis.call('GET', runof(name))
if past then
  past = cjson.decode(past)
  local run = fields(past)
  if run.who == who and run.state == 'completed' then return {'done', now, past} end
  if not sameRun(who, run.who) then
    if run.who == old.who and inside then return {'duplicate', now, all} end
    if dies then bury() end
    return {'redelivered', now, past}
  end
end

if dies then
  bury()
  return hold('granted', now)
end
if state == 'running' then return {'in_flight', now, all} end
-- Only who could know of the completion can mean to run again.
rerun = rerun and (at == 0 or at > ended)
if inside and not rerun then return {'duplicate', now, all} end
local died = old.died == '1'
if (state == 'failed' or state == 'canceled') and not died and old.who ~= who and ARGV[8] == '1'
  and at > 0 and at <= ended and now - ended < late then
  return {'late', now, all}
end
if not died then generation = generation + 1 end
return hold('granted', now, inside)`)

// restore puts back a claim that Redis has lost: by a restart without its data
// or a failover to a replica that had not heard of it. Tokens only grow, so a
// token above the one that Redis knows was granted after what Redis remembers.
const restore = `
local who, token, granted = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local old = redis.call('HMGET', claim, 'state', 'who', 'token')
local state, owner, stored = old[1], old[2], tonumber(old[3] or 0)
if not state or (granted and token > stored) then
  redis.call('HSET', claim, 'state', 'running', 'who', who, 'token', ARGV[2], 'generation', ARGV[4],
    'claim', ARGV[5], 'request', ARGV[6], 'announced', '', 'claimed_at', ARGV[7], 'ended_at', '', 'died', '', 'until', '', 'result', '')
  redis.call('PERSIST', claim)
  state, owner, stored = 'running', who, token
end
if owner ~= who or stored ~= token then return {'not_owner', now} end
`

// renewScript prolongs a lease.
//
//	KEYS[1] -> the claim
//	ARGV    -> who, token, 1, generation, JSON of the claim, request name, time
//	           of the claim, lease in µs
//	Returns ok or not_owner, and the time.
var renewScript = redis.NewScript(clock + tools + restore + `
if state ~= 'running' then return {'not_owner', now} end
local lease = tonumber(ARGV[8])
redis.call('HSET', claim, 'until', lease > 0 and text(now + lease) or '')
return {'ok', now}`)

// settleScript ends a claim; once more with the same end is no error.
//
//	KEYS[1] -> the claim
//	ARGV    -> who, token, 1 where the next four are as granted, generation, JSON
//	           of the claim, request name, time of the claim, state, window in µs,
//	           JSON of the result, 1 where the owner died
//	Returns ok, the time and the record; or not_owner and the time.
var settleScript = redis.NewScript(clock + tools + finishing + restore + `
local ending, window = ARGV[8], tonumber(ARGV[9])
if state ~= 'running' and state ~= ending then return {'not_owner', now} end
if state == 'running' then
  finish(claim, ending, window, ARGV[10], ending == 'canceled' and ARGV[11] or '')
  note(redis.call('HGET', claim, 'request'), who)
end
return {'ok', now, redis.call('HGETALL', claim)}`)

// releaseScript takes a claim away from whoever has it. What stays is a
// tombstone with a higher token, so that the former owner cannot put it back.
//
//	KEYS[1] -> the claim
//	ARGV    -> JSON of the key
//	Returns the time, and the record as it was if it blocked or answered anybody.
var releaseScript = redis.NewScript(clock + tools + `
local all = redis.call('HGETALL', claim)
local old = fields(all)
local state = old.state
local blocks = state == 'running' or state == 'completed' and tonumber(old['until']) > now
  or (state == 'failed' or state == 'canceled') and old.died ~= '1' and now - tonumber(old.ended_at) < late
if not blocks then return {now} end
redis.call('HSET', claim, 'state', 'released', 'token', text(math.max(tonumber(old.token) + 1, now)), 'ended_at', text(now), 'until', '')
redis.call('PEXPIRE', claim, keep)
note(old.request, old.who)
redis.call('PUBLISH', channel, ARGV[1])
return {now, all}`)

// lookScript reads a claim, or the run of a request under its key.
//
//	KEYS[1] -> the claim
//	ARGV    -> request name, '' for the claim itself
//	Returns the time and the fields, none where there is none.
var lookScript = redis.NewScript(clock + tools + `
local all, name = redis.call('HGETALL', claim), ARGV[1]
if name == '' then return {now, all} end
local past = redis.call('GET', runof(name))
if past then return {now, cjson.decode(past)} end
local run = fields(all)
if run.request == name and run.state == 'running' then return {now, all} end
return {now, {}}`)

// epochScript notes when Redis began to remember.
//
//	KEYS[1] -> the epoch
//	Returns it and the time, in µs.
var epochScript = redis.NewScript(clock + `
local epoch = redis.call('GET', KEYS[1])
if not epoch then
  epoch = string.format('%.0f', now)
  redis.call('SET', KEYS[1], epoch)
end
return {tonumber(epoch), now}`)
