/**
 * One call for many requests, each with its own answer. Requests never raise: a refusal is an answer.
 *
 *   KEYS     the lock key of each request (and, with fencing 1, the mark of the tokens as the last)
 *   ARGV     fencing, then for each request <letter><who>, and the arguments that its letter has:
 *
 *   E  body, ttl, channel   take a lock, or a place in line for it; the lock has no delay
 *   T  body, ttl, channel   the same without a place in line
 *   e, t                    like E and T, with the arguments of the last of them
 *   Q  body, ttl, channel, weight, capacity, mode        take anything, or a place in line for it
 *   A  body, ttl, channel, weight, capacity, mode        the same without a place in line
 *   r                       release
 *   R  keepMs               release, and keep the name closed
 *   B  markMs               abandon
 *   W  ttl                  prolong what is held
 *   H  ttl                  heartbeat of a waiter
 *   P                       look, as somebody who waits
 *
 *   answers  g<token>, {g, token, left, data}   granted; left −1: from now on
 *            b, b<ms>       busy; closed for that long
 *            m<capacity>    the name is in use with another capacity
 *            w|<first>|<due>|<foreign>   in line
 *            x              the attempt was abandoned
 *            r, n           released, not held
 *            k, l<reason>   prolonged, lost
 *            y              what belongs beside the lock key is of another type, and not ours
 *            {e, message}   the server refused a command of this request
 *
 * Answers that are all text come as one text with spaces between them, because that is a third of the work to read.
 * If a token had to be drawn from behind the last one by more than a second, one more answer says by how much.
 */
import { redisScript } from '../../../clients/redis/index.ts'
import { library } from './library.ts'
import { prelude } from './prelude.ts'

/**
 * The commonest calls by far, one try or release of a lock that nobody waits for, before anything else is set up: it
 * takes half off the server's time for them. What it does not answer has changed nothing, and goes the ordinary way.
 */
const shortcut = `
local call, sub = redis.call, string.sub
if #ARGV == 5 and ARGV[1] ~= '2' then
  local letter, who, lock = sub(ARGV[2], 1, 1), sub(ARGV[2], 2), KEYS[1]
  if (letter == 'E' or letter == 'T') and call('EXISTS', lock, lock .. ':s', lock .. ':x:' .. who) == 0 then
    local time, token = call('TIME'), ''
    if ARGV[1] == '1' then
      local us = time[1] * 1000000 + time[2]
      token = us > (tonumber(call('GET', KEYS[2]) or 0) or 0) and string.format('%.0f', us)
      if token then call('SET', KEYS[2], token) end
    end
    if token then
      call('SET', lock, 'hf1|' .. who .. '|' .. ARGV[3] .. '|' .. token .. '|' .. time[1] .. '.' .. time[2], 'PX', ARGV[4])
      return 'g' .. token
    end
  end
elseif #ARGV == 2 and sub(ARGV[2], 1, 1) == 'r' then
  local lock, mine = KEYS[1], 'hf1|' .. sub(ARGV[2], 2) .. '|0|'
  local value = redis.pcall('GET', lock)
  if type(value) == 'string' and sub(value, 1, #mine) == mine and call('EXISTS', lock .. ':s') == 0 then
    call('DEL', lock)
    return 'r'
  end
end
`

export const batchScript = redisScript(`${shortcut}${prelude}${library}
-- A lock that nobody holds, waits for or has left data in.
local function take(lock, who, body, ms)
  if call('EXISTS', lock, lock .. ':s', lock .. ':x:' .. who) ~= 0 then return nil end
  look_at_clock()
  local token = draw_token(lock)
  call('SET', lock, 'hf1|' .. who .. '|' .. body .. '|' .. token .. '|' .. now, 'PX', ms)
  return 'g' .. token
end

-- What is rare. An error, say of a key that has another type, is the answer to this request, and none of the others'.
local function step(name, ...)
  lib = lib or library()
  local is_done, answer = pcall(lib[name], ...)
  if is_done then return answer end
  return { 'e', type(answer) == 'table' and answer.err or tostring(answer) }
end

local answers, are_text = {}, true
local body, ttl, channel
local i, count = 2, #ARGV
while i <= count do
  local lock, letter, who = KEYS[#answers + 1], sub(ARGV[i], 1, 1), sub(ARGV[i], 2)
  local answer
  i = i + 1
  if letter == 'E' or letter == 'T' then
    body, ttl, channel = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    i = i + 3
    letter = letter == 'E' and 'e' or 't'
  end
  if letter == 'e' or letter == 't' then
    answer = take(lock, who, body, ttl)
    answer = answer
      or step('acquire', lock, who, body, 1073741824, 1073741824, 'exclusive', tonumber(ttl), letter == 'e' and channel)
  elseif letter == 'r' then
    local value = redis.pcall('GET', lock)
    local mine = 'hf1|' .. who .. '|0|'
    if type(value) == 'string' and sub(value, 1, #mine) == mine and call('EXISTS', lock .. ':s') == 0 then
      call('DEL', lock)
      answer = 'r'
    else
      answer = step('release', lock, who, 0)
    end
  elseif letter == 'W' then
    local value = redis.pcall('GET', lock)
    local mine = 'hf1|' .. who .. '|0|'
    if type(value) == 'string' and sub(value, 1, #mine) == mine then
      call('PEXPIRE', lock, ARGV[i])
      answer = 'k'
    else
      answer = step('renew', lock, who, tonumber(ARGV[i]))
    end
    i = i + 1
  elseif letter == 'Q' or letter == 'A' then
    local asked, ttl_ms, mode = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 5]
    if mode == 'exclusive' then answer = take(lock, who, asked, ttl_ms + match(asked, '^(%d+)|')) end
    answer = answer or step('acquire', lock, who, asked, tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), mode, ttl_ms,
      letter == 'Q' and ARGV[i + 2])
    i = i + 6
  else
    if letter == 'P' then
      answer = step('look', lock, who)
    else
      if letter == 'R' then
        answer = step('release', lock, who, tonumber(ARGV[i]))
      elseif letter == 'B' then
        answer = step('abandon', lock, who, ARGV[i])
      else
        answer = step('beat', lock, who, tonumber(ARGV[i]))
      end
      i = i + 1
    end
  end
  are_text = are_text and type(answer) == 'string'
  answers[#answers + 1] = answer
end
if behindUs > 1000000 then answers[#answers + 1] = 'behind' .. string.format('%.0f', behindUs) end
return are_text and table.concat(answers, ' ') or answers
`)
