package dedup

import "github.com/redis/go-redis/v9"

// A claim is a hash:
//
//	state         running, completed, failed, canceled or released
//	who, run      the owner: run key and node, and the run key alone
//	token         fencing token; it only grows, whatever happens to the claim
//	generation    how many claims under the key came to an end before this one
//	claim         JSON of the key, the owner and the request
//	fingerprint   of the inputs
//	request       the request id as it stands in the key of its copy
//	only          1 where this grant is the only one there ever was
//	announced     1 where it was granted over a completed one inside its window
//	claimed_at ended_at until   in µs of Redis's clock; until is the end of the
//	              lease, or of the window
//	result        JSON of the result
//
// A field that has no value is empty.
//
// A running claim does not expire in Redis: only what proves its owner dead may
// take it away. One that has ended stays beyond its window, so that the token and
// the generation go on growing.
//
// All deadlines are Redis's own: no worker's clock decides. Each script first
// decides, then writes, beginning with what a full Redis refuses: so it does all
// or nothing.
const prelude = `
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local claim = KEYS[1]
local function text(n) return string.format('%.0f', n) end
-- Notes in the copy of the request that began the run how that run ended.
local function copy(name, who, keep)
  if not name or name == '' then return end
  local key = claim .. ':r:' .. name
  local owner = redis.call('HGET', key, 'who')
  if owner and owner ~= who then return end
  redis.call('HSET', key, unpack(redis.call('HGETALL', claim)))
  redis.call('PEXPIRE', key, keep)
end
`

// claimScript decides a claim.
//
//	KEYS[1] -> the claim
//	ARGV    -> who, run, JSON of the claim, request name, fingerprint, time of
//	           the request in µs (0: now), lease in µs (0: none), 1 for a rerun,
//	           token of a dead owner (0: none), µs for which an end answers
//	           requests made before it (0: not at all), ms that a copy stays,
//	           ms that an ended claim stays, channel, JSON of the key
//	Returns decision and time; then token, generation, the times of the claim and
//	of the end of its lease and 1 if it was announced, where the claimer runs;
//	else the record that blocks.
var claimScript = redis.NewScript(prelude + `
local who, run, json, name, fingerprint = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local at, lease, rerun, dead = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == '1', tonumber(ARGV[9])
local late, keepcopy, keep, channel, key = tonumber(ARGV[10]), ARGV[11], ARGV[12], ARGV[13], ARGV[14]

local old = redis.call('HMGET', claim, 'state', 'who', 'token', 'generation', 'until', 'ended_at', 'run', 'request', 'claimed_at', 'announced', 'only')
local state, token, generation = old[1], tonumber(old[3] or 0), tonumber(old[4] or 0)
local ends, ended = tonumber(old[5] or '') or 0, tonumber(old[6] or '') or 0
local inside = state == 'completed' and ends > now

local function blocked(decision, key)
  return {decision, now, redis.call('HGETALL', key)}
end
local function hold(decision, generation, claimed, announced)
  local token, till, only = math.max(token + 1, now), '', state and '' or '1'
  if lease > 0 then till = text(now + lease) end
  if decision == 'resumed' then only = old[11] end
  local fields = {'state', 'running', 'who', who, 'run', run, 'token', text(token), 'generation', generation,
    'claim', json, 'fingerprint', fingerprint, 'request', name, 'only', only or '', 'announced', announced and '1' or '',
    'claimed_at', text(claimed), 'ended_at', '', 'until', till, 'result', ''}
  redis.call('HSET', claim, unpack(fields))
  if state and decision == 'granted' then redis.call('PERSIST', claim) end
  if name ~= '' and decision == 'granted' then
    local key = claim .. ':r:' .. name
    redis.call('HSET', key, unpack(fields))
    redis.call('PEXPIRE', key, keepcopy)
  end
  if announced and decision == 'granted' then redis.call('PUBLISH', channel, key) end
  return {decision, now, {token, generation, claimed, lease > 0 and now + lease or 0, announced and 1 or 0}}
end
local function bury() -- a dead owner's claim, which ends without it
  redis.call('HSET', claim, 'state', 'canceled', 'ended_at', text(now), 'until', '')
  redis.call('PEXPIRE', claim, keep)
  copy(old[8], old[2], keepcopy)
end

if state and old[2] == who then
  if state == 'running' then return hold('resumed', generation, tonumber(old[9]), old[10] == '1') end
  if state == 'completed' then return blocked('done', claim) end
end
local dies = state == 'running' and token == dead

-- A request id means the run that it began, whatever became of it.
if name ~= '' then
  local copied = claim .. ':r:' .. name
  local own = redis.call('HMGET', copied, 'run', 'who', 'state')
  local began = own[1]
  if own[2] == who and own[3] == 'completed' then return blocked('done', copied) end
  if began and began ~= run then
    if began == old[7] and state == 'running' and not dies then return blocked('in_flight', claim) end
    if began == old[7] and inside then return blocked('duplicate', claim) end
    if dies then bury() end
    return blocked('redelivered', copied)
  end
end

if dies then
  bury()
  return hold('granted', generation, now)
end
if state == 'running' then return blocked('in_flight', claim) end
-- Only who could know of the completion can mean to run again.
rerun = rerun and (at == 0 or at > ended)
if inside and not rerun then return blocked('duplicate', claim) end
if (state == 'failed' or state == 'canceled') and old[2] ~= who and at > 0 and at <= ended and now - ended < late then
  return blocked('late', claim)
end
if not state then return hold('granted', 0, now) end
return hold('granted', generation + 1, now, inside)`)

// restore puts back a claim that Redis has lost: by a restart without its data
// or a failover to a replica that had not heard of it. Tokens only grow, so a
// token above the one that Redis knows was granted after what Redis remembers.
const restore = `
local who, token, granted = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local old = redis.call('HMGET', claim, 'state', 'who', 'token')
local state, owner, stored = old[1], old[2], tonumber(old[3] or 0)
if not state or (granted and token > stored) then
  redis.call('HSET', claim, 'state', 'running', 'who', who, 'run', ARGV[4], 'token', ARGV[2], 'generation', ARGV[5],
    'claim', ARGV[6], 'fingerprint', ARGV[7], 'request', ARGV[8], 'only', '', 'announced', '',
    'claimed_at', ARGV[9], 'ended_at', '', 'until', '', 'result', '')
  redis.call('PERSIST', claim)
  copy(ARGV[8], who, ARGV[10])
  state, owner, stored = 'running', who, token
end
if owner ~= who or stored ~= token then return {'not_owner', now} end
`

// renewScript prolongs a lease.
//
//	KEYS[1] -> the claim
//	ARGV    -> who, token, 1, run, generation, JSON of the claim, fingerprint,
//	           request name, time of the claim, ms that a copy stays, lease in µs
//	Returns ok or not_owner, and the time.
var renewScript = redis.NewScript(prelude + restore + `
if state ~= 'running' then return {'not_owner', now} end
local lease = tonumber(ARGV[11])
redis.call('HSET', claim, 'until', lease > 0 and text(now + lease) or '')
return {'ok', now}`)

// settleScript ends a claim; once more with the same end is no error.
//
//	KEYS[1] -> the claim
//	ARGV    -> who, token, 1 where the next seven are as granted, run, generation,
//	           JSON of the claim, fingerprint, request name, time of the claim,
//	           ms that a copy stays, state, window in µs, JSON of the result, ms
//	           that the ended claim stays
//	Returns ok, the time and the record; or not_owner and the time.
var settleScript = redis.NewScript(prelude + restore + `
local ending = ARGV[11]
if state ~= 'running' and state ~= ending then return {'not_owner', now} end
if state == 'running' then
  local till = ending == 'completed' and text(now + tonumber(ARGV[12])) or ''
  redis.call('HSET', claim, 'state', ending, 'ended_at', text(now), 'until', till, 'result', ARGV[13])
  redis.call('PEXPIRE', claim, ARGV[14])
  copy(redis.call('HGET', claim, 'request'), who, ARGV[10])
end
return {'ok', now, redis.call('HGETALL', claim)}`)

// releaseScript takes a claim away from whoever has it. What stays is a
// tombstone with a higher token, so that the former owner cannot put it back.
//
//	KEYS[1] -> the claim
//	ARGV    -> ms that the tombstone stays, ms that a copy stays, µs for which a
//	           failure answers requests, channel, JSON of the key
//	Returns the time, and the record as it was if it blocked anybody.
var releaseScript = redis.NewScript(prelude + `
local old = redis.call('HMGET', claim, 'state', 'until', 'ended_at', 'token', 'request', 'who')
local state, ends, ended = old[1], tonumber(old[2] or '') or 0, tonumber(old[3] or '') or 0
local blocks = state == 'running' or state == 'completed' and ends > now
  or (state == 'failed' or state == 'canceled') and now - ended < tonumber(ARGV[3])
if not blocks then return {now} end
local record = redis.call('HGETALL', claim)
redis.call('HSET', claim, 'state', 'released', 'token', text(math.max(tonumber(old[4]) + 1, now)), 'ended_at', text(now), 'until', '')
redis.call('PEXPIRE', claim, ARGV[1])
copy(old[5], old[6], ARGV[2])
redis.call('PUBLISH', ARGV[4], ARGV[5])
return {now, record}`)

// lookScript reads a record.
//
//	KEYS[1] -> the claim or a copy of it
//	Returns the time and the fields.
var lookScript = redis.NewScript(`
local time = redis.call('TIME')
return {tonumber(time[1]) * 1000000 + tonumber(time[2]), redis.call('HGETALL', KEYS[1])}`)

// epochScript notes when Redis began to remember.
//
//	KEYS[1] -> the epoch
//	Returns it and the time, in µs.
var epochScript = redis.NewScript(`
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local epoch = redis.call('GET', KEYS[1])
if not epoch then
  epoch = string.format('%.0f', now)
  redis.call('SET', KEYS[1], epoch)
end
return {tonumber(epoch), now}`)
