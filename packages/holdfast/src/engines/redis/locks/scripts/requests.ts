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
 *            y:s, y:t, y    a key beside the lock key is of another type, and not ours: lock:s, lock:t; y: the key of the last token
 *            z:t, z         the last token, of the name or of all, is not a number below 2^52: there is no next one
 *            {e, message}   the server refused a command of this request
 *
 * Answers that are all text come as one text with spaces between them, because that is a third of the work to read.
 * If a token had to be drawn from behind the last one by more than a second, one more answer says by how much.
 */

import { LOCK_CAPACITY } from '../../../../spi.ts'
import { redisScript } from '../../client/index.ts'
import { library } from './library.ts'
import { OpCode } from './op-codes.ts'
import { lookAtClock, prelude, useLibrary } from './prelude.ts'

/** Lua: also the rest of the short scripts. `is_untried`: no short script has found that it is not a common one. */
export const requests = `${prelude}${library}
local call, sub = redis.call, string.sub
local answers, are_text = {}, true
local body, ttl, channel, key_ms, weight, capacity, mode, most_waiters
local i, count = 2, #ARGV
while i <= count do
  local operation, who = sub(ARGV[i], 1, 1), sub(ARGV[i], 2)
  local first, second = ARGV[i + 1], ARGV[i + 2]
  if operation == '${OpCode.terms}' then
    body, ttl, channel = first, second, ARGV[i + 3]
    key_ms, weight, capacity, mode, most_waiters = ttl, ${LOCK_CAPACITY}, ${LOCK_CAPACITY}, 'exclusive', ''
    i = i + 4
  elseif operation == '${OpCode.anyTerms}' then
    body, ttl, channel, weight, capacity, mode, most_waiters = unpack(ARGV, i + 1, i + 7)
    key_ms = ttl + string.match(body, '^(%d+)|')
    i = i + 8
  else
    -- The commonest requests first: an exclusive lock without lock-delay, waiters, data or watchers. The library does the rest.
    local lock, answer = KEYS[#answers + 1], nil
    local is_acquire = operation == '${OpCode.enqueue}' or operation == '${OpCode.tryAcquire}'
    if is_acquire and mode == 'exclusive' and is_untried then
      if redis.pcall('EXISTS', lock, lock .. ':s', lock .. ':x:' .. who, watch or lock) == 0 then
        ${lookAtClock}
        local token, refused = draw_token(lock, nowUs)
        if token then
          local value = 'hf1|' .. who .. '|' .. body .. '|' .. token .. '|' .. now
          local written = redis.pcall('SET', lock, value, 'PX', key_ms)
          answer = written.err and refusal(lock, written.err) or 'g' .. (is_fenced and token or now)
        else
          answer = refused
        end
      end
    elseif operation == '${OpCode.renew}' then
      if is_held(lock, who, first) then
        call('PEXPIRE', lock, second)
        answer = 'k'
      end
    elseif operation == '${OpCode.release}' and second == '0' and is_untried then
      if is_held(lock, who, first) and redis.pcall('EXISTS', lock .. ':s', watch or lock .. ':s') == 0 then
        call('DEL', lock)
        answer = 'r'
      end
    end
    if not answer then
      ${useLibrary}
      if is_acquire then
        answer = lib.step(operation, lock, who, body, tonumber(weight), tonumber(capacity), mode, tonumber(ttl),
          operation == '${OpCode.enqueue}' and channel, tonumber(most_waiters))
      else
        answer = lib.step(operation, lock, who, first, tonumber(second))
      end
    end
    i = i + (is_acquire and 1 or 3)
    are_text = are_text and type(answer) == 'string'
    answers[#answers + 1] = answer
  end
end
if behindUs > 1000000 then answers[#answers + 1] = 'behind' .. string.format('%.0f', behindUs) end
return are_text and table.concat(answers, ' ') or answers
`

export const requestScript = redisScript(`local is_untried = true${requests}`)
