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
//	generation    how many claims under the key came to an end before this one
//	claim         JSON of the key, the owner and the request
//	fingerprint   of the inputs
//	request       the request id as it stands in the key of its run
//	only          1 where this grant is the only one there ever was
//	announced     1 where it was granted over a completed one inside its window
//	claimed_at ended_at until   in µs of Redis's clock; until is the end of the
//	              lease, or of the window
//	result        JSON of the result
//
// A field that has no value is empty or absent. The run of a request is a string:
// who and, once that run has ended, a line break and the fields of the claim then.
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
-- Notes for the request that began a run how that ended.
local function note(name, who)
  if not name or name == '' then return end
  local began = redis.call('GET', runof(name))
  if began and string.match(began, '^[^\n]*') ~= who then return end
  redis.call('SET', runof(name), who .. '\n' .. cjson.encode(redis.call('HGETALL', claim)), 'PX', keeprun)
end
`, lateFor.Microseconds(), keepFor.Milliseconds(), keepRequestFor.Milliseconds(), channel)

// claimScript decides a claim. A key that nobody holds is decided first and by
// as little as can be, since that is what most claims are.
//
//	KEYS[1] -> the claim
//	ARGV    -> who, JSON of the claim, request name, fingerprint, lease in µs
//	           (0: none), ms that the run of a request is kept, time of the
//	           request in µs (0: now), JSON of the key for a rerun or '', token
//	           of a dead owner (0: none), 1 if an end answers requests made
//	           before it
//	Returns decision and time; then token, generation, the times of the claim and
//	of the end of its lease and 1 if it was announced, where the claimer runs;
//	else the record that blocks.
var claimScript = redis.NewScript(clock + `
local all = redis.call('HGETALL', claim)
local who, json, name = ARGV[1], ARGV[2], ARGV[3]
if #all == 0 and (name == '' or redis.call('SET', claim .. ':r:' .. name, who, 'NX', 'PX', ARGV[6])) then
  local token, lease, till = string.format('%.0f', now), tonumber(ARGV[5]), 0
  if lease > 0 then till = now + lease end
  redis.call('HSET', claim, 'state', 'running', 'who', who, 'token', token, 'generation', '0', 'claim', json, 'fingerprint', ARGV[4],
    'request', name, 'only', '1', 'claimed_at', token, 'until', till > 0 and string.format('%.0f', till) or '')
  return {'granted', now, {now, 0, now, till, 0}}
end
` + tools + `
local lease, at, rerun, dead = tonumber(ARGV[5]), tonumber(ARGV[7]), ARGV[8] ~= '', tonumber(ARGV[9])
local old = fields(all)
local state, token, generation = old.state, tonumber(old.token or 0), tonumber(old.generation or 0)
local ended = tonumber(old.ended_at or '') or 0
local inside = state == 'completed' and tonumber(old['until']) > now

local function hold(decision, generation, claimed, announced)
  local granted = decision == 'granted'
  local token, till = math.max(token + 1, now), lease > 0 and now + lease or 0
  redis.call('HSET', claim, 'state', 'running', 'who', who, 'token', text(token), 'generation', generation,
    'claim', json, 'fingerprint', ARGV[4], 'request', name, 'only', not granted and old.only or '',
    'announced', announced and '1' or '', 'claimed_at', text(claimed), 'ended_at', '', 'until', till > 0 and text(till) or '', 'result', '')
  if granted then
    redis.call('PERSIST', claim)
    if name ~= '' then redis.call('SET', runof(name), who, 'PX', keeprun) end
    if announced then redis.call('PUBLISH', channel, ARGV[8]) end
  end
  return {decision, now, {token, generation, claimed, till, announced and 1 or 0}}
end
local function bury() -- a dead owner's claim, which ends without it
  redis.call('HSET', claim, 'state', 'canceled', 'ended_at', text(now), 'until', '')
  redis.call('PEXPIRE', claim, keep)
  note(old.request, old.who)
end

if old.who == who then
  if state == 'running' then return hold('resumed', generation, tonumber(old.claimed_at), old.announced == '1') end
  if state == 'completed' then return {'done', now, all} end
end
local dies = state == 'running' and token == dead

-- A request id means the run that it began, whatever became of it.
local run = name ~= '' and redis.call('GET', runof(name))
if run then
  local began, ended = string.match(run, '^([^\n]*)\n?(.*)$')
  local past = ended ~= '' and cjson.decode(ended)
  if began == who and past and fields(past).state == 'completed' then return {'done', now, past} end
  if string.match(began, '^[^/]*') ~= string.match(who, '^[^/]*') then
    if began == old.who and state == 'running' and not dies then return {'in_flight', now, all} end
    if began == old.who and inside then return {'duplicate', now, all} end
    if dies then bury() end
    if began == old.who and dies then past = redis.call('HGETALL', claim) end
    if past then return {'redelivered', now, past} end
  end
end

if dies then
  bury()
  return hold('granted', generation, now)
end
if state == 'running' then return {'in_flight', now, all} end
-- Only who could know of the completion can mean to run again.
rerun = rerun and (at == 0 or at > ended)
if inside and not rerun then return {'duplicate', now, all} end
if (state == 'failed' or state == 'canceled') and old.who ~= who and ARGV[10] == '1'
  and at > 0 and at <= ended and now - ended < late then
  return {'late', now, all}
end
return hold('granted', state and generation + 1 or 0, now, inside)`)

// restore puts back a claim that Redis has lost: by a restart without its data
// or a failover to a replica that had not heard of it. Tokens only grow, so a
// token above the one that Redis knows was granted after what Redis remembers.
const restore = `
local who, token, granted = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local old = redis.call('HMGET', claim, 'state', 'who', 'token')
local state, owner, stored = old[1], old[2], tonumber(old[3] or 0)
if not state or (granted and token > stored) then
  redis.call('HSET', claim, 'state', 'running', 'who', who, 'token', ARGV[2], 'generation', ARGV[4],
    'claim', ARGV[5], 'fingerprint', ARGV[6], 'request', ARGV[7], 'only', '', 'announced', '',
    'claimed_at', ARGV[8], 'ended_at', '', 'until', '', 'result', '')
  redis.call('PERSIST', claim)
  if ARGV[7] ~= '' then redis.call('SET', runof(ARGV[7]), who, 'NX', 'PX', keeprun) end
  state, owner, stored = 'running', who, token
end
if owner ~= who or stored ~= token then return {'not_owner', now} end
`

// renewScript prolongs a lease.
//
//	KEYS[1] -> the claim
//	ARGV    -> who, token, 1, generation, JSON of the claim, fingerprint, request
//	           name, time of the claim, lease in µs
//	Returns ok or not_owner, and the time.
var renewScript = redis.NewScript(clock + tools + restore + `
if state ~= 'running' then return {'not_owner', now} end
local lease = tonumber(ARGV[9])
redis.call('HSET', claim, 'until', lease > 0 and text(now + lease) or '')
return {'ok', now}`)

// settleScript ends a claim; once more with the same end is no error.
//
//	KEYS[1] -> the claim
//	ARGV    -> who, token, 1 where the next five are as granted, generation, JSON
//	           of the claim, fingerprint, request name, time of the claim, state,
//	           window in µs, JSON of the result
//	Returns ok, the time and the record; or not_owner and the time.
var settleScript = redis.NewScript(clock + tools + restore + `
local ending, window = ARGV[9], tonumber(ARGV[10])
if state ~= 'running' and state ~= ending then return {'not_owner', now} end
if state == 'running' then
  local till = ending == 'completed' and text(now + window) or ''
  redis.call('HSET', claim, 'state', ending, 'ended_at', text(now), 'until', till, 'result', ARGV[11])
  redis.call('PEXPIRE', claim, text(math.floor(window / 1000) + keep))
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
  or (state == 'failed' or state == 'canceled') and now - tonumber(old.ended_at) < late
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
local all = redis.call('HGETALL', claim)
if ARGV[1] == '' then return {now, all} end
local run = redis.call('GET', runof(ARGV[1]))
if not run then return {now, {}} end
local began, ended = string.match(run, '^([^\n]*)\n?(.*)$')
if ended ~= '' then return {now, cjson.decode(ended)} end
if fields(all).who == began then return {now, all} end
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
