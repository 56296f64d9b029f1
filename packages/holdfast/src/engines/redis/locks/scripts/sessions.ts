/**
 * A session is one small key of its own. What it holds is not listed there: claims have their own time, so a session
 * that ends leaves nothing that would not end by itself.
 */
import { redisScript } from '../../client/index.ts'

/**
 * KEYS session; ARGV ttl, label, channel. Answers with the TTL that counts: opening again prolongs, and changes nothing.
 * The empty message shows that this user of the server may publish; without that, no waiter would be told of its grant.
 */
export const openSessionScript = redisScript(`
redis.call('PUBLISH', ARGV[3], '')
local ttl = string.match(redis.call('GET', KEYS[1]) or '', '^hs1|(%d+)|') or ARGV[1]
if redis.call('PEXPIRE', KEYS[1], ttl) == 0 then
  redis.call('SET', KEYS[1], 'hs1|' .. ARGV[1] .. '|' .. ARGV[2], 'PX', ARGV[1])
end
return ttl
`)

/** KEYS session. Answers with 1 if it lives and was prolonged. */
export const keepSessionScript = redisScript(`
local ttl = string.match(redis.call('GET', KEYS[1]) or '', '^hs1|(%d+)|')
return ttl and redis.call('PEXPIRE', KEYS[1], ttl) or 0
`)

/** KEYS session. Answers nil, or: what is left of its time, TTL, label. Sessions of Redlock, of another type, are not ours. */
export const findSessionScript = redisScript(`
local value = redis.pcall('GET', KEYS[1])
local ttl, label = string.match(type(value) == 'string' and value or '', '^hs1|(%d+)|(.*)$')
return ttl and { redis.call('PTTL', KEYS[1]), ttl, label }
`)

/** KEYS session. */
export const closeSessionScript = redisScript(`return redis.call('DEL', KEYS[1])`)
