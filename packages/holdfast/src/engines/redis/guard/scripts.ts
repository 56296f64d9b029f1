/**
 * The guard's own scripts, and the frame around an effect. Check and effect are one script, which Redis runs as a whole
 * and replicates and persists as a whole.
 *
 *   compare the server's clock with the deadline ──late──▶ answer that, change nothing
 *   compare what the decision was made on ──differs──▶ answer with what is there now
 *   look at what the effect needs (`before`) ──not so──▶ answer with what is not so
 *   remember the decision, then run the effect ──raises──▶ answer with what it said
 *
 * An effect that raises an error does not undo what it has written before, as always in Redis; nor is what the guard learnt
 * undone, which only ever refuses more.
 */
import { type RedisScript, redisScript } from '../client/index.ts'

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

/** Lua: the server's time in milliseconds. */
const NOW = `(function()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end)()`

/** KEYS a key of its own; ARGV a text, for how many ms it is kept. Answers with the server's time. */
export const markScript = redisScript(`
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ${NOW}
`)

/** The first element of the answer of a framed script. */
export const outcomes = {
  factsDiffer: 0,
  applied: 1,
  beforeDiffers: 2,
  effectFailed: 3,
  late: 4,
} as const

/**
 * KEYS names, touched, issuers, then those of the effect. ARGV the deadline on the server's clock, the guard's time, how many
 * fields are compared, changed and touched, then those, then what belongs to the effect. `body` defines the functions
 * `before` (answers false if all is well) and `effect`; they come first, so that they see nothing but their own KEYS and
 * ARGV, and that lines are counted as in the user's own text.
 */
function framed(body: string): RedisScript {
  return redisScript(`${body}
if ${NOW} > tonumber(ARGV[1]) then return {4} end
local at = 5
local function take() at = at + 1 return ARGV[at] end
local compared, changed, touched = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local texts, differs = {0}, false
for i = 1, compared do
  local key, field, expected = KEYS[tonumber(take())], take(), take()
  local text = redis.call('HGET', key, field) or ''
  texts[i + 1] = text
  if text ~= expected then differs = true end
end
if differs then return texts end
local changes_at = at
at = at + changed * 3 + touched
local keys, args = {}, {}
for i = 4, #KEYS do keys[#keys + 1] = KEYS[i] end
for i = at + 1, #ARGV do args[#args + 1] = ARGV[i] end
local reason = before(keys, args)
if reason then return {2, reason} end
at = changes_at
for _ = 1, changed do redis.call('HSET', KEYS[tonumber(take())], take(), take()) end
for _ = 1, touched do redis.call('ZADD', KEYS[2], ARGV[2], take()) end
local is_done, result = pcall(effect, keys, args)
if is_done and not (type(result) == 'table' and result.err) then return {1, result} end
return {3, tostring(type(result) == 'table' and result.err or result)}
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
  // Arguments are handed over in parts: Lua takes no more than some thousand at once.
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
