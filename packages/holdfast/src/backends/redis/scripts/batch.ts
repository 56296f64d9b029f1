/**
 * One call for many requests, each with its own answer. Requests never raise: a refusal is an answer.
 *
 *   KEYS     the lock key of each request (and, with fencing 1, the mark of the tokens as the last)
 *   ARGV     fencing and where watchers are found, then for each request <letter><who>, and the arguments that its letter has (letters.ts)
 *
 *   answers  g<grant>, {g, grant, left, data}   granted; left −1: from now on
 *            b, b<ms>       busy; closed for that long
 *            m<capacity>    the name is in use with another capacity
 *            w|<first>|<due>|<foreign>   in line
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

import { LARGEST_ENGINE_TOKEN } from '../../../base/fence.ts'
import { redisScript } from '../../../clients/redis/index.ts'
import { LOCK_CAPACITY } from '../../../spi.ts'
import { Letter } from './letters.ts'
import { library } from './library.ts'
import { prelude } from './prelude.ts'

/**
 * The commonest calls by far, one try or release of a lock that nobody waits for, before anything else is set up: it
 * takes half off the server's time for them. What it does not answer has changed nothing, and goes the ordinary way.
 */
const shortcut = `
local call, sub = redis.call, string.sub
local fencing, watch = sub(ARGV[1], 1, 1), sub(ARGV[1], 2)
-- On a Cluster no key tells that there are watchers; the key in its place never exists.
if fencing == '3' and #ARGV <= 5 then watch = redis.pcall('PUBSUB', 'NUMSUB', watch)[2] == 0 and KEYS[1] .. ':x:' end
if #ARGV == 5 and fencing ~= '2' and watch then
  local letter, who, lock = sub(ARGV[2], 1, 1), sub(ARGV[2], 2), KEYS[1]
  if (letter == '${Letter.enqueue}' or letter == '${Letter.tryTake}')
    and redis.pcall('EXISTS', lock, lock .. ':s', lock .. ':x:' .. who, watch) == 0 then
    local time, token = call('TIME'), ''
    if fencing == '1' then
      local us = time[1] * 1000000 + time[2]
      local mark = redis.pcall('GET', KEYS[2])
      token = (not mark or type(mark) == 'string' and string.match(mark, '^%d+$') and us > tonumber(mark))
        and us <= ${LARGEST_ENGINE_TOKEN} and string.format('%.0f', us)
      if token then call('SET', KEYS[2], token) end
    end
    if token then
      local at = time[1] .. '.' .. time[2]
      call('SET', lock, 'hf1|' .. who .. '|' .. ARGV[3] .. '|' .. token .. '|' .. at, 'PX', ARGV[4])
      return 'g' .. (token == '' and at or token)
    end
  end
elseif #ARGV == 3 and fencing ~= '2' and watch and sub(ARGV[2], 1, 1) == '${Letter.release}' then
  local lock, mine = KEYS[1], 'hf1|' .. sub(ARGV[2], 2) .. '|0|'
  local value = redis.pcall('GET', lock)
  if type(value) == 'string' and sub(value, 1, #mine) == mine and redis.pcall('EXISTS', lock .. ':s', watch) == 0 then
    local token, at = string.match(value, '|(%d*)|([^|]+)$', -40)
    if (fencing == '1' and token or at) == ARGV[3] then
      call('DEL', lock)
      return 'r'
    end
  end
end
`

export const batchScript = redisScript(`${shortcut}${prelude}${library}
-- A lock that nobody holds, waits for, has left data in or watches. That it cannot be written is the answer to this request alone.
local function take(lock, who, body, ms)
  if is_watched() or redis.pcall('EXISTS', lock, lock .. ':s', lock .. ':x:' .. who) ~= 0 then return nil end
  look_at_clock()
  local token, unusable = draw_token(lock)
  if not token then return unusable end
  local written = redis.pcall('SET', lock, 'hf1|' .. who .. '|' .. body .. '|' .. token .. '|' .. now, 'PX', ms)
  return written.err and refusal(lock, written.err) or 'g' .. (is_fenced and token or now)
end

-- What is rare. An error, say of a key that has another type, is the answer to this request, and none of the others'.
local function step(name, lock, ...)
  -- A renewal needs only existing keys. Every other step may need a key that is missing, or already on the other node.
  local is_refused = name ~= 'renew' and is_moving(lock) or name == 'renew' and are_apart(lock, lock .. ':s', lock .. ':h')
  if is_refused then return 'v' end
  lib = lib or library()
  local is_done, answer = pcall(lib[name], lock, ...)
  if is_done then return answer end
  return refusal(lock, type(answer) == 'table' and answer.err or tostring(answer))
end

local answers, are_text = {}, true
local body, ttl, channel
local i, count = 2, #ARGV
while i <= count do
  local lock, letter, who = KEYS[#answers + 1], sub(ARGV[i], 1, 1), sub(ARGV[i], 2)
  local answer
  i = i + 1
  if letter == '${Letter.enqueue}' or letter == '${Letter.tryTake}' then
    body, ttl, channel = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    i = i + 3
    letter = letter == '${Letter.enqueue}' and '${Letter.enqueueAlike}' or '${Letter.tryTakeAlike}'
  end
  if letter == '${Letter.enqueueAlike}' or letter == '${Letter.tryTakeAlike}' then
    answer = take(lock, who, body, ttl)
    answer = answer
      or step('acquire', lock, who, body, ${LOCK_CAPACITY}, ${LOCK_CAPACITY}, 'exclusive', tonumber(ttl),
        letter == '${Letter.enqueueAlike}' and channel)
  elseif letter == '${Letter.release}' then
    local value = redis.pcall('GET', lock)
    local mine = 'hf1|' .. who .. '|0|'
    local is_mine = type(value) == 'string' and sub(value, 1, #mine) == mine and is_grant(value, ARGV[i])
    -- In a slot that is being moved, waiters that are on the other side find the name free when they look.
    if is_mine and (not is_watched() and redis.pcall('EXISTS', lock .. ':s') == 0 or is_moving(lock)) then
      call('DEL', lock)
      if is_watched() then
        lib = lib or library()
        lib.log(lock, 'released', who, match(value, '|(%d*)|[^|]+$'), match(value, '^hf1|[^|]+|[^|]+|(.*)|%d*|[^|]+$'))
      end
      answer = 'r'
    else
      answer = step('release', lock, who, ARGV[i], 0)
    end
    i = i + 1
  elseif letter == '${Letter.renew}' then
    local value = redis.pcall('GET', lock)
    local mine = 'hf1|' .. who .. '|0|'
    if type(value) == 'string' and sub(value, 1, #mine) == mine and is_grant(value, ARGV[i + 1]) then
      call('PEXPIRE', lock, ARGV[i])
      answer = 'k'
    else
      answer = step('renew', lock, who, ARGV[i + 1], tonumber(ARGV[i]))
    end
    i = i + 2
  elseif letter == '${Letter.enqueueAny}' or letter == '${Letter.tryTakeAny}' or letter == '${Letter.enqueueUpTo}' then
    local asked, ttl_ms, mode = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 5]
    if mode == 'exclusive' then answer = take(lock, who, asked, ttl_ms + match(asked, '^(%d+)|')) end
    answer = answer or step('acquire', lock, who, asked, tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), mode, ttl_ms,
      letter ~= '${Letter.tryTakeAny}' and ARGV[i + 2], letter == '${Letter.enqueueUpTo}' and tonumber(ARGV[i + 6]))
    i = i + (letter == '${Letter.enqueueUpTo}' and 7 or 6)
  else
    if letter == '${Letter.look}' then
      answer = step('look', lock, who)
    else
      if letter == '${Letter.releaseAndKeep}' then
        answer = step('release', lock, who, ARGV[i], tonumber(ARGV[i + 1]))
        i = i + 1
      elseif letter == '${Letter.abandon}' then
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
