/**
 * What every script about names starts with: the server's time and the tokens, both looked at only when they are needed.
 *
 * ARGV[1], the setting, is one digit, followed by the key that exists while the namespace is watched (watching.ts); on a Redis
 * Cluster by nothing. The digit says how tokens are drawn: `0` not at all, `1` from one mark for the whole database (the last
 * of KEYS), and on a Cluster, where a script reaches one slot only, `2` from a mark per name, `3` not at all. A token is the
 * server's time in microseconds, or one more than the last if that is not less; `%.0f`, because Lua prints large numbers as
 * `1.79e+15` (T69). It is drawn in the step that grants (T37), and survives the loss of all data, because the clock does (T38).
 *
 * The one mark is moved ahead once for all requests of a call, before the first of them is granted: a script that fails
 * in the middle, say because the memory is full, then leaves no token behind that could be drawn again.
 *
 * A grant is known by its token, or without tokens by the server's time when it was made: an attempt whose request arrives
 * once more after its lock was deleted gets another (T84).
 *
 * If the last token is not a number, or the next would exceed 2^52 − 1, nothing is granted: an operator must decide which
 * tokens come next. Larger ones would leave no room for an epoch, and from 2^53 on Lua's numbers lose digits.
 */
import { LARGEST_ENGINE_TOKEN } from '../../../base/fence.ts'

export const prelude = `
local call, sub, match, floor = redis.call, string.sub, string.match, math.floor
local fencing, watch = sub(ARGV[1], 1, 1), #ARGV[1] > 1 and sub(ARGV[1], 2)
local is_fenced = fencing == '1' or fencing == '2'
local is_cluster = fencing == '2' or fencing == '3'
local watched, has_woken
local now, nowUs, nowMs
local behindUs = 0
local drawn, reserved = 0, 0

local function look_at_clock()
  if now then return end
  local time = call('TIME')
  now = time[1] .. '.' .. time[2]
  nowUs = time[1] * 1000000 + time[2]
  nowMs = floor(nowUs / 1000)
end

-- Asked at most once in a call. What is denied is not watched.
local function is_watched()
  if watched == nil then watched = watch and redis.pcall('EXISTS', watch) == 1 end
  return watched
end

-- While a slot of a Cluster is being moved, its keys are on two nodes, and a script sees those of one. The server refuses a
-- command about several keys then, unless it has all of them.
local function are_apart(...)
  if not is_cluster then return false end
  local found = redis.pcall('EXISTS', ...)
  return type(found) == 'table' and match(found.err, 'non local key') ~= nil
end

-- The second key never exists, so a slot that is being moved always refuses this.
local function is_moving(lock)
  return are_apart(lock, lock .. ':x:')
end

-- That the memory is full, say, is the answer to one request alone. What refuses every write, as on a replica, is raised in
-- the server's own words, which the clients act upon; nothing has been written then.
local function refusal(lock, message)
  if match(message, 'READONLY') or match(message, 'MISCONF') or match(message, 'NOREPLICAS') then
    call('HDEL', lock .. ':s', '-')
  end
  return { 'e', message }
end

-- The first of those that come after everything that was drawn, and up to which they may be drawn. Otherwise nothing, and
-- the answer that says why: the key has another type, is no number that can be added to, or cannot be written.
local function reserve(key, suffix, count, ...)
  local mark = redis.pcall('GET', key)
  if type(mark) == 'table' then return nil, 'y' .. suffix end
  if mark and not match(mark, '^%d+$') then return nil, 'z' .. suffix end
  local last, first = tonumber(mark or 0), nowUs
  if last >= first then
    first = last + 1
    behindUs = math.max(behindUs, last - nowUs)
  end
  if first + count - 1 > ${LARGEST_ENGINE_TOKEN} then return nil, 'z' .. suffix end
  local written = redis.pcall('SET', key, string.format('%.0f', first + count - 1), ...)
  if written.err then return nil, refusal(key, written.err) end
  return first, first + count - 1
end

-- Nothing, and the answer that says so, if there can be none.
local function draw_token(lock)
  if not is_fenced then return '' end
  local token, last = drawn + 1, reserved
  if fencing == '2' then
    token, last = reserve(lock .. ':t', ':t', 1, 'PX', 86400000)
  elseif drawn >= reserved then
    token, last = reserve(KEYS[#KEYS], '', #KEYS - 1)
  end
  if not token then return nil, last end
  drawn, reserved = token, last
  return string.format('%.0f', token)
end
`

/** Starts with the server's own error code, so that clients recognise it. Sent only before anything is written. */
export const SLOT_IS_MOVING = 'TRYAGAIN the slot of this name is being moved to another node'
