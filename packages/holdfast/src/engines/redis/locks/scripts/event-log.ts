/**
 * The log of events, for watchers. The steps that change something write it, and only while there is a watcher: without one,
 * a call costs one look at a key that is not there.
 *
 *   watch         the id of the log, while it is watched; watchers prolong it. If it is missing, nothing is written
 *   watch:log     stream: one field e, an event as JSON: kind, public id, token, lock key, body. The newest `KEPT_EVENTS` or so
 *   watch:held    hash: of each exclusive holder, by lock key: <public id>|<token>|<granted at>|<body>
 *   watch:due     sorted set: lock keys that are held, by the time from which on one of their holders may be over
 *
 * Redis removes the key of a holder whose time is up, and nothing is told. So holders are remembered in `held`: the next step
 * that opens the name tells of the end. Watchers open the names that are due. A renewal writes nothing here, so a name that was
 * renewed is opened too, and is due again when the rest of its time is up: one to one and a half times per TTL.
 *
 * On a Cluster these keys would lie in other slots than the locks, so there is no log there, and core compares lists.
 */
import { redisScript } from '../../client/index.ts'
import { library } from './library.ts'
import { prelude, useLibrary } from './prelude.ts'

/**
 * KEYS watch; ARGV an id for a new log, for how long. Opens the log or prolongs it. Answers with its id, the position of its
 * last event, the time, and whether the current holders are known to it.
 *
 * The empty message is heard by nobody. It shows that this user may publish: without that, an expiry that this process notices
 * would wake no watcher, and nobody would be told why.
 */
export const openLogScript = redisScript(`
local call, watch, ms = redis.call, KEYS[1], ARGV[2]
call('PUBLISH', string.match(watch, 'holdfast:.*') .. ':', '')
local log, held, due = watch .. ':log', watch .. ':held', watch .. ':due'
local id = redis.pcall('GET', watch)
if call('EXISTS', log, held, due) ~= 3 or type(id) ~= 'string' or redis.pcall('XLEN', log) == 0 then
  id = ARGV[1]
  call('DEL', watch, log, held, due)
  -- So that none of them is ever empty, and each keeps its expiry.
  call('XADD', log, '*', 'e', '')
  call('HSET', held, '', '')
  call('ZADD', due, '+inf', '')
end
call('SET', watch, id, 'PX', ms)
for _, key in ipairs({ log, held, due }) do call('PEXPIRE', key, 2 * ms) end
local last, time = call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1][1], call('TIME')
return { id, last, time[1] * 1000 + math.floor(time[2] / 1000), call('HGET', held, '') == 'all' and 1 or 0 }
`)

/** KEYS watch; ARGV id, position, count. The event at the position and those after it; nil if the log does not have it. */
export const readLogScript = redisScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
local events = redis.call('XRANGE', KEYS[1] .. ':log', ARGV[2], '+', 'COUNT', ARGV[3])
return events[1] and events[1][1] == ARGV[2] and events
`)

/**
 * KEYS watch; ARGV setting, how many at most, then further lock keys, or "all" when there are no more of them. Looks at the
 * names that are due. Answers with the milliseconds until the next is, 0 if there is more to look at now; −1 if none is.
 */
export const lookAtDueScript = redisScript(`${prelude}${library}${useLibrary}
local call, nowMs = redis.call, math.floor(nowUs / 1000)
if redis.pcall('EXISTS', watch) ~= 1 then return -1 end
local due = watch .. ':due'
local locks = call('ZRANGEBYSCORE', due, '-inf', nowMs, 'LIMIT', 0, ARGV[2])
for i = 3, #ARGV do locks[#locks + 1] = ARGV[i] end
for _, lock in ipairs(locks) do
  if lock == 'all' then
    call('HSET', watch .. ':held', '', 'all')
  else
    local is_done, failure = pcall(lib.look_for_watchers, lock)
    if not is_done then
      local message = type(failure) == 'table' and failure.err or tostring(failure)
      if lib.is_denial(message) then return redis.error_reply(message) end
      -- A key of it is not ours; its next step will say so.
      call('ZREM', due, lock)
    end
  end
end
local first = call('ZRANGE', due, 0, 0, 'WITHSCORES')
if first[2] == 'inf' then return -1 end
-- A name that is still the first after a look could not be moved, say because the memory is full.
return math.max(first[1] == locks[1] and 1 or 0, first[2] - nowMs)
`)
