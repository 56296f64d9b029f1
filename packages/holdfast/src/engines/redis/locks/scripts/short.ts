/**
 * The common requests, alone in a call: a free exclusive lock, its renewal, its release. Each is the start of a script that
 * answers them with as few commands as may be, and goes on with `requests.ts` in the same call for everything else.
 *
 *   acquire   KEYS lock (and the mark of the tokens); ARGV watch, who, ttl, what is shown, channel (empty: now or not at all)
 *   held      KEYS the same; ARGV watch, the value of the lock key (up to the token, if there is one), and to renew: ttl
 *
 * One script is one step, so nothing comes between the checks and the change. Between two of them:
 * - a late acquire meets the mark of its abandon, and one that was granted and deleted gets another grant (T84, late duplicates);
 * - a waiter has queued, data is stored, or the namespace is watched: `lock:s` or the watch key exists, and the whole script
 *   hands the lock over and writes the log;
 * - the holder's time is up, an operator has released it, or it has another grant: the value is another one;
 * - the clock is behind the last token, or that is no number: the whole script draws the token, or refuses;
 * - a write is refused in the middle: at most the mark of the tokens has been moved ahead.
 */
import { LARGEST_ENGINE_TOKEN } from '../../../../base/fence.ts'
import { type RedisScript, redisScript } from '../../client/index.ts'
import { OpCode } from './op-codes.ts'
import type { TokenSource } from './prelude.ts'
import { requests } from './requests.ts'

export type ShortScripts = Readonly<Record<'acquire' | 'held', RedisScript>>

/** Lua: draws a token if the last one is before it. A time in microseconds has 16 digits, so texts can be compared. */
const drawToken = (read: string, otherwise: string, write: string) => `
  local us = time[2]
  if #us < 6 then us = string.sub('00000' .. us, -6) end
  token = time[1] .. us
  local last = token > '${LARGEST_ENGINE_TOKEN}' and {} or ${read}
  if last and (type(last) ~= 'string' or #last ~= 16 or last >= token or string.find(last, '%D')) then
    token = nil${otherwise}
  end${write}`

const tokens: Readonly<Record<TokenSource, string>> = {
  0: '',
  1: drawToken(
    "call('SET', KEYS[2], token, 'GET')",
    "\n    if type(last) == 'string' then call('SET', KEYS[2], last) end",
    '',
  ),
  // A mark that is refused keeps the rest of its time, which `SET` would overwrite.
  2: drawToken(
    "call('GET', lock .. ':t')",
    '',
    "\n  if token and call('SET', lock .. ':t', token, 'PX', 86400000).err then token = nil end",
  ),
  3: '',
}

export function shortScriptsFor(source: TokenSource): ShortScripts {
  const isFenced = tokens[source] !== ''
  const orWatched = source === '0' || source === '1' ? ', ARGV[1]' : ''
  const acquire = `
local call, lock, who, ttl, shown = redis.pcall, KEYS[1], ARGV[2], ARGV[3], ARGV[4]
if call('EXISTS', lock, lock .. ':s', lock .. ':x:' .. who${orWatched}) == 0 then
  local time, token = redis.call('TIME'), ''
  local now = time[1] .. '.' .. time[2]${tokens[source]}
  if token and
    not call('SET', lock, 'hf1|' .. who .. '|0|' .. ttl .. '|' .. shown .. '|' .. token .. '|' .. now, 'PX', ttl).err then
    return 'g' .. ${isFenced ? 'token' : 'now'}
  end
end
local operation = ARGV[5] == '' and '${OpCode.tryAcquire}' or '${OpCode.enqueue}'
local ARGV = { '${source}' .. ARGV[1], '${OpCode.terms}', '0|' .. ttl .. '|' .. shown, ttl, ARGV[5], operation .. who }`
  const held = `
local call, lock, mine, ttl = redis.pcall, KEYS[1], ARGV[2], ARGV[3]
local value = call('GET', lock)
local is_mine = ${isFenced ? "type(value) == 'string' and string.sub(value, 1, #mine) == mine" : 'value == mine'}
if is_mine then
  if ttl then
    redis.call('PEXPIRE', lock, ttl)
    return 'k'
  elseif call('EXISTS', lock .. ':s'${orWatched}) == 0 then
    redis.call('DEL', lock)
    return 'r'
  end
end
local who, token, at = string.match(mine, '^hf1|([^|]+|[^|]+)|.*|(%d*)|([^|]*)$')
local operation = ttl and '${OpCode.renew}' or '${OpCode.release}'
local ARGV = { '${source}' .. ARGV[1], operation .. who, token == '' and at or token, ttl or '0' }`
  return {
    acquire: redisScript(`${acquire}\nlocal is_untried = false${requests}`),
    held: redisScript(`${held}\nlocal is_untried = not is_mine${requests}`),
  }
}
