/**
 * The guard's own scripts, and the frame around an effect. Check and effect are one script, which Redis runs as a whole
 * and replicates and persists as a whole.
 *
 *   look the number of the call up ──has arrived before──▶ answer with what came of it, change nothing
 *   compare what the decision was made on ──differs──▶ answer with what is there now
 *   look at what the effect needs (`before`) ──not so──▶ answer with what is not so
 *   remember the decision, then run the effect ──raises──▶ answer with what it said
 *
 * What may go wrong: the same call arrives again, at once or much later (`calls.ts`). So its number is used up by its first
 * arrival, whatever comes of it. An effect that raises an error does not undo what it has written before, as always in
 * Redis; nor is what the guard learnt undone, which only ever refuses more.
 */
import { type RedisScript, redisScript } from '../../clients/redis/index.ts'

/** KEYS names, issuers; ARGV for each field the number of its key, and the field. */
export const recallScript = redisScript(`
local texts = {}
for at = 1, #ARGV, 2 do texts[#texts + 1] = redis.call('HGET', KEYS[tonumber(ARGV[at])], ARGV[at + 1]) or '' end
return texts
`)

/** KEYS names, touched, issuers; ARGV until when, how many at most. Answers how many were forgotten. */
export const forgetScript = redisScript(`
local forgotten = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for _, name in ipairs(forgotten) do
  local text = redis.call('HGET', KEYS[1], name)
  if text then
    local issuer, token, grant = string.match(text, '^([^\\n]*)\\n[^\\n]*\\n(%d+)\\n([^\\n]*)')
    local field = 'floor ' .. issuer
    local floor = redis.call('HGET', KEYS[3], field)
    -- Texts of 19 digits are ordered like the numbers.
    if not floor or token > string.sub(floor, 1, 19) then redis.call('HSET', KEYS[3], field, token .. '\\n' .. grant) end
  end
  redis.call('HDEL', KEYS[1], name)
  redis.call('ZREM', KEYS[2], name)
end
return #forgotten
`)

/**
 * KEYS calls, series; ARGV a random text, for how many ms the server keeps a series, how many it closes at most. Answers
 * with the name of a series that never was before: a late copy of this call opens another, which nobody uses.
 */
export const openScript = redisScript(`
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - tonumber(ARGV[2]), 'LIMIT', 0, ARGV[3])
for _, series in ipairs(old) do
  redis.call('HDEL', KEYS[1], series)
  redis.call('ZREM', KEYS[2], series)
end
redis.call('HSETNX', KEYS[1], 'memory', ARGV[1])
local series = redis.call('HGET', KEYS[1], 'memory') .. '.' .. redis.call('HINCRBY', KEYS[1], 'opened', 1) .. '.' .. ARGV[1]
redis.call('HSET', KEYS[1], series, '1 ')
redis.call('ZADD', KEYS[2], now, series)
return series
`)

/** What comes first in the answer of a framed script. */
export const outcomes = {
  factsDiffer: 0,
  applied: 1,
  beforeDiffers: 2,
  appliedBefore: 3,
  effectFailed: 4,
  seriesUnknown: 5,
  settledBefore: 6,
} as const

/**
 * KEYS names, touched, issuers, calls, then those of the effect. ARGV the series of the call, its number, the lowest number
 * that is still in flight, the time, how many fields are compared, changed and touched, then those, then what belongs to
 * the effect. In `calls` a series has its lowest number that counts, and from there on for each number a character: `-` if
 * it has not arrived, otherwise what came of it. `body` defines the functions `before` (answers false if all is well) and `effect`; they come first, so that
 * they see nothing but their own KEYS and ARGV, and that lines are counted as in the user's own text.
 */
function framed(body: string): RedisScript {
  return redisScript(`${body}
local series, number = ARGV[1], tonumber(ARGV[2])
local known = redis.call('HGET', KEYS[4], series)
if not known then
  local memory = redis.call('HGET', KEYS[4], 'memory')
  return {memory == string.match(series, '^[^.]+') and 6 or 5}
end
local lowest, seen = string.match(known, '^(%d+) (.*)$')
if number < tonumber(lowest) then return {6} end
local place = number - lowest + 1
local earlier = string.sub(seen, place, place)
if earlier == '1' then return {3} end
if earlier == '2' or earlier == '4' then return {tonumber(earlier)} end
local function use_up(outcome)
  local settled = math.max(0, ARGV[3] - lowest)
  lowest, seen, place = lowest + settled, string.sub(seen, settled + 1), place - settled
  seen = string.sub(seen, 1, place - 1) .. string.rep('-', place - 1 - #seen) .. outcome .. string.sub(seen, place + 1)
  redis.call('HSET', KEYS[4], series, lowest .. ' ' .. seen)
end
local at = 7
local function take() at = at + 1 return ARGV[at] end
local compared, changed, touched = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local texts, differs = {0}, earlier == '0'
for i = 1, compared do
  local key, field, expected = KEYS[tonumber(take())], take(), take()
  local text = redis.call('HGET', key, field) or ''
  texts[i + 1] = text
  if text ~= expected then differs = true end
end
if differs then
  use_up('0')
  return texts
end
local changes_at = at
at = at + changed * 3 + touched
local keys, args = {}, {}
for i = 5, #KEYS do keys[#keys + 1] = KEYS[i] end
for i = at + 1, #ARGV do args[#args + 1] = ARGV[i] end
local reason = before(keys, args)
if reason then
  use_up('2')
  return {2, reason}
end
use_up('1')
at = changes_at
for _ = 1, changed do redis.call('HSET', KEYS[tonumber(take())], take(), take()) end
for _ = 1, touched do redis.call('ZADD', KEYS[2], ARGV[4], take()) end
local is_done, result = pcall(effect, keys, args)
if is_done and not (type(result) == 'table' and result.err) then return {1, result} end
use_up('4')
return {4, tostring(type(result) == 'table' and result.err or result)}
`)
}

/** The user's own Lua, as the body of a function. */
export function framedEffect(source: string): RedisScript {
  return framed(`local function effect(KEYS, ARGV) ${source}
end
local function before() return false end
`)
}

/**
 * A transaction: KEYS those that were read, then those that are written; ARGV how many were read, for each the word
 * `none` or the word `text` and the text; then for each write a word, a text and a number.
 */
export const transactionScript = framed(`
local function before(KEYS, ARGV)
  for i = 1, tonumber(ARGV[1]) do
    local value = redis.pcall('GET', KEYS[i])
    if type(value) == 'table' then return KEYS[i] end
    local is_same = value and ARGV[i * 2] == 'text' and value == ARGV[i * 2 + 1]
    if not value then is_same = ARGV[i * 2] == 'none' end
    if not is_same then return KEYS[i] end
  end
  return false
end
local function effect(KEYS, ARGV)
  local reads = tonumber(ARGV[1])
  local arg = reads * 2 + 1
  for i = reads + 1, #KEYS do
    local word, text, ms = ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3]
    arg = arg + 3
    if word == 'delete' then redis.call('DEL', KEYS[i])
    elseif word == 'keep' then redis.call('SET', KEYS[i], text, 'KEEPTTL')
    elseif ms == '' then redis.call('SET', KEYS[i], text)
    else redis.call('SET', KEYS[i], text, 'PX', ms) end
  end
  return true
end
`)

/** Effects that need no Lua of the user's. */
export const helpers = {
  get: framedEffect(`return redis.call('GET', KEYS[1])`),
  set: framedEffect(`
if ARGV[2] == '' then redis.call('SET', KEYS[1], ARGV[1]) else redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return true`),
  // As text: a number of Lua's would lose digits.
  increment: framedEffect(`
redis.call('INCRBY', KEYS[1], ARGV[1])
return redis.call('GET', KEYS[1])`),
  // In parts: Lua cannot hand over more than some thousand arguments at once.
  delete: framedEffect(`
local removed = 0
for from = 1, #KEYS, 1000 do removed = removed + redis.call('DEL', unpack(KEYS, from, math.min(from + 999, #KEYS))) end
return removed`),
} as const

/** KEYS one. Answers with the text, or with a list of what is wrong. */
export const readScript = redisScript(`
local text = redis.pcall('GET', KEYS[1])
if type(text) == 'table' then return {text.err} end
return text
`)
