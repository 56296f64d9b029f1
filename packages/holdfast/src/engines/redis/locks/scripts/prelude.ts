/**
 * The prelude of every script about names: the server's time and the tokens, both looked at only when they are needed.
 *
 * ARGV[1], the setting, is one digit, followed by the key that exists while the namespace is watched (event-log.ts); on a Redis
 * Cluster by nothing. The digit says how tokens are drawn: `0` not at all, `1` from one mark for the whole database (the last
 * of KEYS), and on a Cluster, where a script reaches one slot only, `2` from a mark per name, `3` not at all. A token is the
 * server's time in microseconds, or one more than the last if that is not less; `%.0f`, because Lua prints large numbers as
 * `1.79e+15` (T69, numbers in Lua). It is drawn in the step that grants (T37, tokens drawn apart), and survives the loss of all data,
 * because the clock does (T38, restarting tokens).
 *
 * The one mark is moved ahead once for all requests of a call, before the first of them is granted: a script that fails
 * in the middle, say because the memory is full, then leaves no token behind that could be drawn again.
 *
 * A grant is known by its token, or without tokens by the server's time when it was made: an attempt whose request arrives
 * once more after its lock was deleted gets another (T84, late duplicates).
 *
 * If the last token is not a number, or the next would exceed 2^52 − 1, nothing is granted: an operator must decide which
 * tokens come next. Larger ones would leave no room for an epoch, and from 2^53 on Lua's numbers lose digits.
 */
import { LARGEST_ENGINE_TOKEN } from '../../../../base/fence.ts'

/** Where tokens come from: the digit of the setting. */
export type TokenSource = '0' | '1' | '2' | '3'

export const prelude = `
-- Most calls need little of this script. Each function costs time in each call, so there are few, and they share few variables.
local fencing, watch = string.sub(ARGV[1], 1, 1), #ARGV[1] > 1 and string.sub(ARGV[1], 2)
local is_fenced = fencing == '1' or fencing == '2'
local now, nowUs
local drawn, reserved, behindUs = 0, 0, 0
local lib

-- That the memory is full, say, is the answer to one request alone. What refuses every write, as on a replica, is raised in
-- the server's own words, which the clients act upon; nothing has been written then.
local function refusal(lock, message)
  if string.match(message, 'READONLY') or string.match(message, 'MISCONF') or string.match(message, 'NOREPLICAS') then
    redis.call('HDEL', lock .. ':s', '-')
  end
  return { 'e', message }
end

-- A token that comes after everything that was drawn. Otherwise nothing, and the answer that says why: the key of the mark has
-- another type, is no number that can be added to, or cannot be written.
local function draw_token(lock, us)
  if not is_fenced then return '' end
  if drawn == reserved then
    local is_own = fencing == '2'
    local key, suffix = is_own and lock .. ':t' or KEYS[#KEYS], is_own and ':t' or ''
    local mark = redis.pcall('GET', key)
    if type(mark) == 'table' then return nil, 'y' .. suffix end
    if mark and not string.match(mark, '^%d+$') then return nil, 'z' .. suffix end
    local before, last = us - 1, tonumber(mark or 0)
    if last > before then
      before, behindUs = last, math.max(behindUs, last - us)
    end
    local upto = before + (is_own and 1 or #KEYS - 1)
    if upto > ${LARGEST_ENGINE_TOKEN} then return nil, 'z' .. suffix end
    local text = string.format('%.0f', upto)
    local written = is_own and redis.pcall('SET', key, text, 'PX', 86400000) or not is_own and redis.pcall('SET', key, text)
    if written.err then return nil, refusal(key, written.err) end
    drawn, reserved = before, upto
  end
  drawn = drawn + 1
  return string.format('%.0f', drawn)
end

-- Whether an exclusive lock without lock-delay is held by this grant, or by any grant of the attempt if none is named. Token and
-- time are in the last 35 characters, so only they are searched.
local function is_held(lock, who, grant)
  local value, mine = redis.pcall('GET', lock), 'hf1|' .. who .. '|0|'
  if type(value) ~= 'string' or string.sub(value, 1, #mine) ~= mine then return false end
  local token, at = string.match(value, '|(%d*)|([^|]+)$', -40)
  return grant == '' or (is_fenced and token or at) == grant
end
`

/** Lua: looks at the clock, at most once in a call. */
export const lookAtClock = `
  if not now then
    local time = redis.call('TIME')
    now, nowUs = time[1] .. '.' .. time[2], time[1] * 1000000 + time[2]
  end
`

/** Lua: what a script does before it uses the library. */
export const useLibrary = `${lookAtClock}
  lib = lib or library(fencing, watch, now, nowUs, draw_token, refusal, is_held)
`

/** Starts with the server's own error code, so that clients recognise it. Sent only before anything is written. */
export const SLOT_IS_MOVING = 'TRYAGAIN the slot of this name is being moved to another node'
