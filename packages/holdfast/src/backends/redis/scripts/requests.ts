/**
 * One call for many requests, each with its own answer. Requests never raise: a refusal is an answer.
 *
 *   KEYS     the lock key of each request (and, with fencing 1, the mark of the tokens as the last)
 *   ARGV     the setting (prelude.ts), then for each request <operation><who>, and the arguments of the operation (op-codes.ts)
 *
 *   answers  g<grant>, {g, grant, left, data}   granted; left −1: from now on
 *            b, b<ms>       busy; closed for that long
 *            m<capacity>    the name is in use with another capacity
 *            w|<first>|<due>|<foreign>   it waits in the queue
 *            f              as many are waiting as the request allows; it is not queued
 *            x              the attempt was abandoned
 *            r, n           released, not held
 *            k, l<reason>   prolonged, lost; lreplaced: the attempt holds it by another grant
 *            {l, reason, detail}   lost by a force release, with the operator's reason
 *            y:s, y:t, y    what belongs beside the lock key is of another type, and not ours; y: the mark of the tokens
 *            z:t, z         the last token, of the name or of all, is not a number below 2^52: there is no next one
 *            v              the slot of the name is being moved to another node: nothing was done
 *            {e, message}   the server refused a command of this request
 *
 * Answers that are all text come as one text with spaces between them, because that is a third of the work to read.
 * If a token had to be drawn from behind the last one by more than a second, one more answer says by how much.
 */

import { redisScript } from '../../../clients/redis/index.ts'
import { LOCK_CAPACITY } from '../../../spi.ts'
import { library } from './library.ts'
import { OpCode } from './op-codes.ts'
import { prelude } from './prelude.ts'

export const requestScript = redisScript(`${prelude}${library}
-- The three commonest requests, for an exclusive lock without lock-delay, waiters, data or watchers. Nil for any other name:
-- then nothing was done, and the library does it.
local function take(lock, who, body, ms)
  if redis.pcall('EXISTS', lock, lock .. ':s', lock .. ':x:' .. who, watch or lock) ~= 0 then return nil end
  look_at_clock()
  local token, refused = draw_token(lock)
  if not token then return refused end
  local written = redis.pcall('SET', lock, 'hf1|' .. who .. '|' .. body .. '|' .. token .. '|' .. now, 'PX', ms)
  return written.err and refusal(lock, written.err) or 'g' .. (is_fenced and token or now)
end

-- Token and time are in the last 35 characters, so only they are searched.
local function is_held(lock, who, grant)
  local value, mine = redis.pcall('GET', lock), 'hf1|' .. who .. '|0|'
  if type(value) ~= 'string' or sub(value, 1, #mine) ~= mine then return false end
  if grant == '' then return true end
  local token, at = match(value, '|(%d*)|([^|]+)$', -40)
  return (is_fenced and token or at) == grant
end

local function release(lock, who, grant)
  if not is_held(lock, who, grant) then return nil end
  local others = redis.pcall('EXISTS', lock .. ':s', watch or lock .. ':s')
  -- In a slot that is being moved, waiters that are on the other side find the name free when they look.
  if others ~= 0 and not is_moving(lock) then return nil end
  call('DEL', lock)
  return 'r'
end

local function renew(lock, who, grant, ttl)
  if not is_held(lock, who, grant) then return nil end
  call('PEXPIRE', lock, ttl)
  return 'k'
end

-- An error, say of a key that has another type, is the answer to this request, and to no other.
local function step(operation, lock, ...)
  -- A renewal needs only existing keys. Every other step may need a key that is missing, or already on the other node.
  local is_refused
  if operation == '${OpCode.renew}' then
    is_refused = are_apart(lock, lock .. ':s', lock .. ':h')
  else
    is_refused = is_moving(lock)
  end
  if is_refused then return 'v' end
  lib = lib or library()
  local is_done, answer = pcall(lib.steps[operation], lock, ...)
  if is_done then return answer end
  return refusal(lock, type(answer) == 'table' and answer.err or tostring(answer))
end

local answers, are_text = {}, true
local body, ttl, channel, key_ms, weight, capacity, mode, most_waiters
local i, count = 2, #ARGV
while i <= count do
  local operation, who = sub(ARGV[i], 1, 1), sub(ARGV[i], 2)
  if operation == '${OpCode.terms}' then
    body, ttl, channel = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    key_ms, weight, capacity, mode, most_waiters = ttl, ${LOCK_CAPACITY}, ${LOCK_CAPACITY}, 'exclusive', ''
    i = i + 4
  elseif operation == '${OpCode.anyTerms}' then
    body, ttl, channel, weight, capacity, mode, most_waiters = unpack(ARGV, i + 1, i + 7)
    key_ms = ttl + match(body, '^(%d+)|')
    i = i + 8
  else
    local lock, answer = KEYS[#answers + 1], nil
    if operation == '${OpCode.enqueue}' or operation == '${OpCode.tryAcquire}' then
      answer = mode == 'exclusive' and take(lock, who, body, key_ms)
        or step(operation, lock, who, body, tonumber(weight), tonumber(capacity), mode, tonumber(ttl),
          operation == '${OpCode.enqueue}' and channel, tonumber(most_waiters))
      i = i + 1
    else
      local first, second = ARGV[i + 1], ARGV[i + 2]
      if operation == '${OpCode.renew}' then
        answer = renew(lock, who, first, second)
      elseif operation == '${OpCode.release}' and second == '0' then
        answer = release(lock, who, first)
      end
      answer = answer or step(operation, lock, who, first, tonumber(second))
      i = i + 3
    end
    are_text = are_text and type(answer) == 'string'
    answers[#answers + 1] = answer
  end
end
if behindUs > 1000000 then answers[#answers + 1] = 'behind' .. string.format('%.0f', behindUs) end
return are_text and table.concat(answers, ' ') or answers
`)
