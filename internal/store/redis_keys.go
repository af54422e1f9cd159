package store

import (
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The keys of the store in Redis. All of one object carry the same hash tag, so
// that Redis Cluster keeps them in one slot and a script may reach them all; the
// scripts derive the keys of the chunks from a prefix with that tag.
//
//	belay:store-index        sorted set of all keys, for listing
//	belay:store:{<key>}      hash: gen, size, at (ms), last (id of the last append)
//	belay:store:{<key>}:<gen>:<n>   chunk n, chunkSize bytes but for the last
const (
	keyPrefix = "belay:store:"
	indexKey  = "belay:store-index"
)

func metaKey(key string) string {
	// A brace would end the hash tag early.
	return keyPrefix + "{" + strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D").Replace(key) + "}"
}

func chunkPrefix(key string) string { return metaKey(key) + ":" }

func chunkKey(key, gen string, n int) string {
	return fmt.Sprintf("%s%s:%d", chunkPrefix(key), gen, n)
}

// publishScript makes a draft the object, all at once, and lets the chunks of
// the former one expire.
//
//	KEYS[1] -> the object's hash
//	ARGV    -> prefix of chunks, gen, number of chunks, size, time in ms,
//	           seconds that the former chunks stay
//	Returns OK, or an error where a chunk of the draft has expired.
var publishScript = redis.NewScript(`
local prefix, gen, chunks = ARGV[1], ARGV[2], tonumber(ARGV[3])
for n = 0, chunks - 1 do
  if redis.call('EXISTS', prefix .. gen .. ':' .. n) == 0 then
    return redis.error_reply('ERR a chunk expired before the object was complete')
  end
end
local old = redis.call('HMGET', KEYS[1], 'gen', 'size')
if old[1] == gen then return redis.status_reply('OK') end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'gen', gen, 'size', ARGV[4], 'at', ARGV[5])
for n = 0, chunks - 1 do
  redis.call('PERSIST', prefix .. gen .. ':' .. n)
end
if old[1] then
  local n = 0
  while redis.call('EXPIRE', prefix .. old[1] .. ':' .. n, ARGV[6]) == 1 do n = n + 1 end
end
return redis.status_reply('OK')`)

// appendScript adds bytes at the end of an object.
//
//	KEYS[1] -> the object's hash
//	ARGV    -> prefix of chunks, chunk size, expected size, bytes, time in ms,
//	           id of this append, which becomes the gen of a new object
//	Returns -1 when done, else the size that the object has instead.
var appendScript = redis.NewScript(`
local prefix, chunk, off, data = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local now = redis.call('HMGET', KEYS[1], 'gen', 'size', 'last')
if now[3] == ARGV[6] then return -1 end
local gen, size = now[1] or ARGV[6], tonumber(now[2] or '0')
if size ~= off or (off == 0 and now[1]) then return size end
redis.call('HSET', KEYS[1], 'gen', gen, 'size', string.format('%.0f', size + #data), 'at', ARGV[5], 'last', ARGV[6])
local done = 0
while done < #data do
  local room = chunk - (size + done) % chunk
  redis.call('APPEND', prefix .. gen .. ':' .. math.floor((size + done) / chunk), string.sub(data, done + 1, done + room))
  done = done + room
end
return -1`)

// readScript reads a part of an object that lies in at most two chunks.
//
//	KEYS[1] -> the object's hash
//	ARGV    -> prefix of chunks, chunk size, offset, number of bytes
//	Returns the bytes there are, or nil where there is no object.
var readScript = redis.NewScript(`
local prefix, chunk, off, want = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local gen = redis.call('HGET', KEYS[1], 'gen')
if not gen then return nil end
local first, from = math.floor(off / chunk), off % chunk
local got = redis.call('GETRANGE', prefix .. gen .. ':' .. first, from, from + want - 1)
if from + want > chunk then
  got = got .. redis.call('GETRANGE', prefix .. gen .. ':' .. first + 1, 0, from + want - chunk - 1)
end
return got`)

// deleteScript removes an object.
//
//	KEYS[1] -> the object's hash
//	ARGV    -> prefix of chunks
//	Returns the number of chunks there were.
var deleteScript = redis.NewScript(`
local gen = redis.call('HGET', KEYS[1], 'gen')
local n = 0
if gen then
  while redis.call('UNLINK', ARGV[1] .. gen .. ':' .. n) == 1 do n = n + 1 end
end
redis.call('DEL', KEYS[1])
return n`)
