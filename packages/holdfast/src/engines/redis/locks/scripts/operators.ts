/** Rare steps of one name: its data, and what operators see and do. */

import { LOCK_CAPACITY } from '../../../../spi.ts'
import { redisScript } from '../../client/index.ts'
import { library } from './library.ts'
import { prelude, SLOT_IS_MOVING, useLibrary } from './prelude.ts'

const start = `${prelude}${library}${useLibrary}
local call, sub, match, floor = redis.call, string.sub, string.match, math.floor
local lock, nowMs = KEYS[1], floor(nowUs / 1000)
if lib.is_moving(lock) then return redis.error_reply('${SLOT_IS_MOVING}') end
`

/** KEYS lock; ARGV setting, who, grant, data. */
export const setDataScript = redisScript(`${start}
local n = lib.open(lock)
if not lib.holds(n, ARGV[2], ARGV[3]) then return 'n' end
call('HSET', n.state, 'd', ARGV[4])
call('PERSIST', n.state)
call('PERSIST', n.queue)
lib.log_holder(n, 'data', ARGV[2])
return 's'
`)

/**
 * KEYS lock; ARGV setting, `holders` if the waiters are not needed. Answers nil, or: kind, capacity, closed for, data, holders,
 * waiters, time, how long the lock lives, digest of a foreign value. Holders and waiters whose time is up are not shown. It
 * writes nothing but what is over anyway.
 */
export const inspectScript = redisScript(`${start}
local n = lib.open(lock)
local holders, waiters = {}, {}
if n.kind == 'exclusive' then
  local body, token, seconds, us = match(n.value, '^hf1|[^|]+|[^|]+|(.*)|(%d*)|(%d+)%.(%d+)$')
  holders[1] = { n.who, '${LOCK_CAPACITY}', 'exclusive', token, seconds * 1000 + floor(us / 1000), lib.left(n) - n.delay, body }
elseif n.kind == 'several' then
  for _, who in ipairs(call('ZRANGE', n.holders, 0, -1)) do
    local record, ends = lib.record(n, who)
    local weight, mode, token, since, body = match(record or '', '^(%d+)|([^|]*)|(%d*)|(%d+)|(.*)$')
    if weight then holders[#holders + 1] = { who, weight, mode, token, since, ends - nowMs, body } end
  end
end
for i, w in ipairs(ARGV[2] == 'holders' and {} or lib.living(n)) do
  waiters[i] = { w.who, w.weight, w.mode, nowMs - w.since, w.body }
end
local closed = 0
if n.kind == 'closed' then closed = lib.left(n) end
if n.kind == 'several' and n.closed > nowMs then closed = n.closed - nowMs end
if n.kind == 'free' and #waiters == 0 and not n.data then return false end
return { n.kind, n.capacity or 0, closed, n.data and { n.data } or {}, holders, waiters, nowMs, lib.left(n), lib.digest(n) }
`)

/** Refuses a call that arrives after its expiry (T78, late operators). */
const operatorStart = `${start}
if nowMs >= tonumber(ARGV[2]) then return 'late' end
`

/** KEYS lock; ARGV setting, expiry, how long marks last, reason, then the ids. Answers with the number of holders that were released. */
export const forceReleaseScript = redisScript(`${operatorStart}
lib.write_also_when_full(lock)
local n = lib.open(lock)
local ids, released = {}, 0
for i = 5, #ARGV do ids[ARGV[i]] = true end
local meant = {}
if n.kind == 'exclusive' then
  meant[1] = n.who
elseif n.kind == 'several' then
  meant = call('ZRANGE', n.holders, 0, -1)
elseif n.kind == 'foreign' and ids['foreign:' .. lib.digest(n)] then
  n.kind, n.left, n.is_stale = 'free', nil, true
  released = 1
end
for _, who in ipairs(meant) do
  if ids[sub(who, 1, 22)] and lib.let_go(n, who, 0, 'force-released') then
    local mark = lock .. ':x:' .. who
    call('SET', mark, 'force-released', 'PX', ARGV[3])
    call('SET', mark .. ':why', ARGV[4], 'PX', ARGV[3])
    released = released + 1
  end
end
lib.settle(n)
lib.finish(n)
return released
`)

/** KEYS lock; ARGV setting, expiry, from, to. */
export const resizeScript = redisScript(`${operatorStart}
local n = lib.open(lock)
local capacity = tonumber(ARGV[4])
lib.forget_dead_queue(n)
if n.capacity ~= tonumber(ARGV[3]) then return 'changed' end
local heaviest = n.held
for _, w in ipairs(lib.living(n)) do heaviest = math.max(heaviest, w.weight) end
if heaviest > capacity then return 'in-use' end
n.capacity = capacity
call('HSET', n.state, 'cap', capacity)
lib.settle(n)
lib.finish(n)
return 'resized'
`)

/** KEYS lock; ARGV setting, expiry, data. */
export const forgetScript = redisScript(`${operatorStart}
local n = lib.open(lock)
lib.settle(n)
if n.kind == 'exclusive' or n.kind == 'several' or n.kind == 'foreign' or lib.head(n) then return 'in-use' end
if n.data ~= ARGV[3] then return 'changed' end
call('DEL', n.state, n.queue)
return 'forgotten'
`)
