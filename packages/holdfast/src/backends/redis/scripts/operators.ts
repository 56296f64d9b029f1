/** Steps of one name that are not asked for often: its data, and what operators see and do. */
import { redisScript } from '../../../clients/redis/index.ts'
import { LOCK_CAPACITY } from '../../../spi.ts'
import { library } from './library.ts'
import { prelude, SLOT_IS_MOVING } from './prelude.ts'

const start = `${prelude}${library}
lib = library()
local lock = KEYS[1]
if is_moving(lock) then return redis.error_reply('${SLOT_IS_MOVING}') end
`

/** KEYS lock; ARGV fencing, who, data. */
export const setDataScript = redisScript(`${start}
local n = lib.open(lock)
if not lib.holding(n, ARGV[2]) then return 'n' end
call('HSET', n.state, 'd', ARGV[3])
call('PERSIST', n.state)
return 's'
`)

/**
 * KEYS lock; ARGV fencing. Answers nil, or: kind, capacity, closed for, data, holders, waiters. What time has brought
 * about is seen as done; who is dead is not shown. It writes nothing but what is over anyway.
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
for place = n.first, n.tail - 1 do
  local w = lib.waiter_at(n, place)
  if w and w.dead_from > nowMs then waiters[#waiters + 1] = { w.who, w.weight, w.mode, nowMs - w.since, w.body } end
end
local closed = 0
if n.kind == 'closed' then closed = lib.left(n) end
if n.kind == 'several' and n.closed > nowMs then closed = n.closed - nowMs end
if n.kind == 'free' and #waiters == 0 and not n.data then return false end
return { n.kind, n.capacity or 0, closed, n.data and { n.data } or {}, holders, waiters, nowMs, lib.left(n) }
`)

/** KEYS lock; ARGV fencing, kind, wanted, how long marks last, what foreign clients are called. Answers with the number of those who were released. */
export const forceReleaseScript = redisScript(`${start}
lib.write_also_when_full(lock)
local n = lib.open(lock)
local meant = {}
local function consider(who, token, body)
  local label = cjson.decode(match(body, '^%d+|%d+|(.*)$'))[1]
  if ARGV[2] == 'all' or (ARGV[2] == 'token' and token == ARGV[3]) or (ARGV[2] == 'holder' and label == ARGV[3]) then
    meant[#meant + 1] = who
  end
end
if n.kind == 'exclusive' then
  local body, token = match(n.value, '^hf1|[^|]+|[^|]+|(.*)|(%d*)|[^|]+$')
  consider(n.who, token, body)
elseif n.kind == 'several' then
  for _, who in ipairs(call('ZRANGE', n.holders, 0, -1)) do
    local token, body = match(lib.record(n, who) or '', '^%d+|[^|]*|(%d*)|%d+|(.*)$')
    if token then consider(who, token, body) end
  end
end
if n.kind == 'foreign' and (ARGV[2] == 'all' or (ARGV[2] == 'holder' and ARGV[3] == ARGV[5])) then
  n.kind, n.left, n.is_stale = 'free', nil, true
  lib.settle(n)
  lib.finish(n)
  return 1
end
for _, who in ipairs(meant) do
  call('SET', lock .. ':x:' .. who, 'force-released', 'PX', ARGV[4])
  lib.let_go(n, who, 0)
end
lib.settle(n)
lib.finish(n)
return #meant
`)

/** KEYS lock; ARGV fencing, capacity. */
export const resizeScript = redisScript(`${start}
local n = lib.open(lock)
local capacity = tonumber(ARGV[2])
lib.forget_dead_line(n)
if not n.capacity then return 'not-found' end
if n.capacity == ${LOCK_CAPACITY} then return 'lock' end
local heaviest = n.held
for place = n.first, n.tail - 1 do
  local w = lib.waiter_at(n, place)
  if w and w.dead_from > nowMs then heaviest = math.max(heaviest, w.weight) end
end
if heaviest > capacity then return 'in-use' end
n.capacity = capacity
call('HSET', n.state, 'cap', capacity)
lib.settle(n)
lib.finish(n)
return 'resized'
`)

/** KEYS lock; ARGV fencing. */
export const forgetScript = redisScript(`${start}
local n = lib.open(lock)
lib.settle(n)
if n.kind == 'exclusive' or n.kind == 'several' or n.kind == 'foreign' or lib.head(n) then return 'in-use' end
if not n.data then return 'not-found' end
call('DEL', n.state)
return 'forgotten'
`)
