/**
 * One call for many requests, each with its own answer. Requests never raise: a refusal is an answer.
 *
 *   KEYS     the lock key of each request (and, with fencing 1, the mark of the tokens as the last)
 *   ARGV     fencing, then for each request its letter and its arguments:
 *
 *   A  who, body, ms        try, exclusive; ms is the TTL and the lock delay together
 *   a  who, body, ttl, weight, capacity, mode            try
 *   Q  who, body, ttl, weight, capacity, mode, channel   take a place in line
 *   R  who, keepMs          release
 *   B  who, markMs          abandon
 *   W  who, ttl             prolong what is held
 *   T  who, ttl             heartbeat of a waiter
 *   P  who                  look, as somebody who waits
 *
 *   answers  g<token>, {g, token, left, data}   granted; left −1: from now on
 *            b, b<ms>       busy; closed for that long
 *            m<capacity>    the name is in use with another capacity
 *            w|<first>|<due>|<foreign>   in line
 *            x              the attempt was abandoned
 *            r, n           released, not held
 *            k, l<reason>   prolonged, lost
 *
 * If a token had to be drawn from behind the last one by more than a second, one more answer says by how much.
 */
import { redisScript } from '../../../clients/redis/index.ts'
import { library } from './library.ts'
import { prelude } from './prelude.ts'

/**
 * The commonest calls by far, one unfenced try or release of a lock that nobody waits for, before anything else is set
 * up: it takes a third off the server's time for them. What it does not answer goes the ordinary way below.
 */
const shortcut = `
if ARGV[1] == '0' and #KEYS == 1 then
  local call, lock, who = redis.call, KEYS[1], ARGV[3]
  if ARGV[2] == 'A' then
    if call('EXISTS', lock, lock .. ':s', lock .. ':x:' .. who) == 0 then
      local time = call('TIME')
      local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
      call('SET', lock, 'hf1|' .. who .. '|' .. ARGV[4] .. '||' .. now_ms, 'PX', ARGV[5])
      return { 'g' }
    end
  elseif ARGV[2] == 'R' and ARGV[4] == '0' then
    local value = call('GET', lock)
    local mine = 'hf1|' .. who .. '|0|'
    if value and string.sub(value, 1, #mine) == mine and call('EXISTS', lock .. ':s') == 0 then
      call('DEL', lock)
      return { 'r' }
    end
  end
end
`

export const batchScript = redisScript(`${shortcut}${prelude}${library}
local answers = {}
local i = 2
for k = 1, fencing == '1' and #KEYS - 1 or #KEYS do
  local lock, letter, who = KEYS[k], ARGV[i], ARGV[i + 1]
  local answer
  if letter == 'A' then
    if call('EXISTS', lock, lock .. ':s', lock .. ':x:' .. who) == 0 then
      look_at_clock()
      local token = draw_token(lock)
      call('SET', lock, 'hf1|' .. who .. '|' .. ARGV[i + 2] .. '|' .. token .. '|' .. nowMs, 'PX', ARGV[i + 3])
      answer = 'g' .. token
    else
      lib = lib or library()
      local delay, ttl = match(ARGV[i + 2], '^(%d+)|(%d+)|')
      answer = lib.acquire(lock, who, ARGV[i + 2], 1073741824, 1073741824, 'exclusive', tonumber(ttl))
    end
    i = i + 4
  elseif letter == 'R' then
    local value = call('GET', lock)
    local mine = 'hf1|' .. who .. '|0|'
    if value and ARGV[i + 2] == '0' and sub(value, 1, #mine) == mine and call('EXISTS', lock .. ':s') == 0 then
      call('DEL', lock)
      answer = 'r'
    else
      lib = lib or library()
      answer = lib.release(lock, who, tonumber(ARGV[i + 2]))
    end
    i = i + 3
  elseif letter == 'W' then
    local value = call('GET', lock)
    local mine = 'hf1|' .. who .. '|0|'
    if value and sub(value, 1, #mine) == mine then
      call('PEXPIRE', lock, ARGV[i + 2])
      answer = 'k'
    else
      lib = lib or library()
      answer = lib.renew(lock, who, tonumber(ARGV[i + 2]))
    end
    i = i + 3
  else
    lib = lib or library()
    if letter == 'Q' or letter == 'a' then
      answer = lib.acquire(lock, who, ARGV[i + 2], tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]), ARGV[i + 6],
        tonumber(ARGV[i + 3]), letter == 'Q' and ARGV[i + 7])
      i = i + (letter == 'Q' and 8 or 7)
    elseif letter == 'B' then
      answer = lib.abandon(lock, who, ARGV[i + 2])
      i = i + 3
    elseif letter == 'T' then
      answer = lib.beat(lock, who, tonumber(ARGV[i + 2]))
      i = i + 3
    else
      answer = lib.look(lock, who)
      i = i + 2
    end
  end
  answers[k] = answer
end
if behindUs > 1000000 then answers[#answers + 1] = 'behind' .. string.format('%.0f', behindUs) end
return answers
`)
