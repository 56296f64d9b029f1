/**
 * Scripts of a node, in Lua. A script runs as a whole, so nothing happens between two of its lines.
 *
 * Keys of a node:
 *
 *   lock      string, PX   `hfr1|<attempt>|<session>|<lock-delay ms>|<granted at>|<details>`: the vote of this node. The
 *                          start, up to and with the session, is its owner. It lives for TTL + lock-delay.
 *   session   hash, PX     `ttl`, `holder`; for each attempt that is over, by its owner, the reason: a late request for it is
 *                          refused; after a force release also, by its owner and `why`, the operator's reason
 *   boot      string       `<run id>|<trusted from ms>`: which process has answered here, and since when it counts
 *
 * The lock is what `SET key value NX PX ttl` makes, so that other clients of Redlock and Holdfast exclude each other.
 */
import { redisScript } from '../client/index.ts'

/** Used by several scripts; small, because a script is run anew from its first line every time. */
const holding = `
-- The lock's value if 'owner' set it and its time is not up, and its lock-delay; else nothing, and what is there.
local function held_by(lock, owner)
  local value = redis.pcall('GET', lock)
  if type(value) ~= 'string' or string.sub(value, 1, #owner) ~= owner then return nil, 0, value end
  if string.sub(value, #owner + 1, #owner + 2) == '0|' then return value, 0, value end
  local delay = tonumber(string.match(value, '^(%d+)|', #owner + 1))
  local left = redis.call('PTTL', lock)
  if left >= 0 and left <= delay then return nil, delay, value end
  return value, delay, value
end

-- Whether a lock of 'owner' is of the grant that was made at this time; of any, if the time is not known (T84, late duplicates).
local function is_grant(value, owner, granted_at)
  return granted_at == '' or string.match(value, '^%d+|([^|]*)|', #owner + 1) == granted_at
end

-- Ends the hold of 'owner', if it has one. A lock-delay that has begun is left to run.
local function drop(lock, owner, keep_ms, granted_at)
  local mine = held_by(lock, owner)
  if not mine or not is_grant(mine, owner, granted_at) then return false end
  if keep_ms == '0' then redis.call('DEL', lock) else redis.call('SET', lock, 'hfr1|closed', 'PX', keep_ms) end
  return true
end
`

/** A mark lives as long as its session: without the session, a late request is refused anyway. */
const marking = `
local function mark(session, owner, reason)
  if redis.call('EXISTS', session) == 1 then redis.call('HSETNX', session, owner, reason) end
end
`

/**
 * Which process this is, and for how much longer its votes do not count. A process that has not been seen before may have
 * forgotten locks. If another process has left a trace, this one was restarted or took over, and how much it has forgotten is
 * not known. Without a trace it has started empty, and nothing is older than its start.
 */
const identity = `
local function identity(boot, quarantine_ms)
  local info = redis.pcall('INFO', 'server')
  if type(info) ~= 'string' then return '', 0, '' end
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local run = string.match(info, 'run_id:(%x+)')
  local known = redis.pcall('GET', boot)
  local trusted
  if type(known) == 'string' and string.sub(known, 1, #run) == run then
    trusted = tonumber(string.sub(known, #run + 2))
  else
    trusted = now + quarantine_ms
    -- The uptime is in whole seconds: it may have started up to a second later than it seems.
    local uptime = tonumber(string.match(info, 'uptime_in_seconds:(%d+)'))
    if type(known) ~= 'string' then trusted = trusted - uptime * 1000 + 1000 end
    if quarantine_ms == 0 then trusted = now end
    redis.call('SET', boot, run .. '|' .. string.format('%.0f', trusted))
  end
  local left = math.max(0, math.min(trusted - now, quarantine_ms))
  return run, left, string.match(info, 'redis_version:(%S+)') or ''
end
`

/**
 * KEYS boot, and to open a session: the session; ARGV quarantine ms, then its ttl and holder. Answers with the run id (empty if
 * INFO is not allowed), ms until the votes count, the version, and the TTL of the session. A repetition prolongs the session.
 */
export const openScript = redisScript(`${identity}
local run, quarantined, version = identity(KEYS[1], tonumber(ARGV[1]))
if not KEYS[2] then return {run, quarantined, version} end
redis.call('HSETNX', KEYS[2], 'ttl', ARGV[2])
redis.call('HSETNX', KEYS[2], 'holder', ARGV[3])
local ttl = redis.call('HGET', KEYS[2], 'ttl')
redis.call('PEXPIRE', KEYS[2], ttl)
return {run, quarantined, version, ttl}
`)

/**
 * The claims script. KEYS session and lock of each request; ARGV the run id (empty if no vote is asked for), then the requests: an operation, the
 * owner, and what else the operation needs. Answers each request at its position; one that fails answers {e, message}. If
 * another process answers than the one that is meant, it does nothing and its answer is empty: it may have forgotten locks.
 *
 * A server whose memory is full lets a script go on once it has written. Giving up must be possible then as well, so a write
 * comes first that is never refused, and that does nothing: there is no such field.
 */
const claims = `${holding}${marking}
local operations = {}

function operations.release(session, lock, owner, keep_ms, granted_at)
  -- To delete is never refused.
  if keep_ms ~= '0' then redis.pcall('HDEL', session, '-') end
  -- A closed session holds nothing. What is left of it is deleted all the same.
  local is_alive = redis.call('EXISTS', session) == 1
  return drop(lock, owner, keep_ms, granted_at) and is_alive and 'released' or 'not-held'
end

function operations.abandon(session, lock, owner)
  redis.pcall('HDEL', session, '-')
  mark(session, owner, 'abandoned')
  drop(lock, owner, '0', '')
  return 'abandoned'
end

function operations.close(session, lock, owner)
  redis.call('DEL', session)
  drop(lock, owner, '0', '')
  return 'closed'
end

-- For an operator: 'owner' is the whole value if another client set the lock. 'not_after' is by the clock here.
function operations.force(session, lock, owner, not_after, reason)
  local time = redis.call('TIME')
  if time[1] * 1000 + math.floor(time[2] / 1000) >= tonumber(not_after) then return 'expired' end
  if redis.pcall('GET', lock) == owner then return redis.call('DEL', lock) == 1 and 'released' end
  if not string.find(owner, '^hfr1|.*|$') or not drop(lock, owner, '0', '') then return 'not-held' end
  mark(session, owner, 'force-released')
  mark(session, owner .. 'why', reason)
  return 'released'
end

-- 'acquire' answers with the time of the grant. 'restore' sets what a majority was just confirmed to have and this node has
-- not, with the time of the grant that the node had made, if it had.
function operations.acquire(session, lock, owner, ttl, delay, details, granted_at)
  local known = redis.call('HMGET', session, 'ttl', owner)
  if not known[1] then return 'no-session' end
  if known[2] then return 'abandoned' end
  local life = delay == '0' and ttl or ttl + delay
  if granted_at == '' then
    local time = redis.call('TIME')
    granted_at = time[1] .. '.' .. time[2]
  end
  local value = owner .. delay .. '|' .. granted_at .. '|' .. details
  if redis.call('SET', lock, value, 'NX', 'PX', life) then return granted_at end
  local mine, _, there = held_by(lock, owner)
  if mine then
    redis.call('PEXPIRE', lock, life)
    return string.match(mine, '^%d+|([^|]*)|', #owner + 1)
  end
  return {redis.call('PTTL', lock), type(there) == 'string' and string.sub(there, 1, 27) or ''}
end
operations.restore = operations.acquire

if ARGV[1] ~= '' then
  local info = redis.pcall('INFO', 'server')
  if type(info) ~= 'string' or not string.find(info, ARGV[1], 1, true) then return {} end
end
-- A server that refuses every write, such as a replica, says so in its own words; nothing has been written then.
local function refuses_all(message)
  return string.find(message, 'READONLY') or string.find(message, 'MISCONF') or string.find(message, 'NOREPLICAS')
end

local lengths = {acquire = 5, restore = 5, release = 3, abandon = 1, close = 1, force = 3}
local answers, key, at = {}, 1, 2
while at <= #ARGV do
  local operation, last = ARGV[at], at + lengths[ARGV[at]]
  local is_done, answer = pcall(operations[operation], KEYS[key], KEYS[key + 1], unpack(ARGV, at + 1, last))
  if not is_done then
    answer = {'e', type(answer) == 'table' and answer.err or tostring(answer)}
    if refuses_all(answer[2]) then redis.call('HDEL', KEYS[key], '-') end
  end
  at = last + 1
  answers[#answers + 1] = answer
  key = key + 2
end
return answers
`

export const claimsScript = redisScript(claims)

/**
 * The common requests, alone in a call: a vote for a free lock, and its release, both without lock-delay. Each is the start of a
 * script that goes on with the whole one, in the same step, for everything else and for every failure.
 *
 * ARGV the run id, the owner, ttl, details.
 */
export const voteScript = redisScript(`
local info = redis.pcall('INFO', 'server')
if type(info) ~= 'string' or not string.find(info, ARGV[1], 1, true) then return {} end
local owner, ttl, details = ARGV[2], ARGV[3], ARGV[4]
local known = redis.pcall('HMGET', KEYS[1], 'ttl', owner)
if known[1] and not known[2] then
  local time = redis.call('TIME')
  local granted_at = time[1] .. '.' .. time[2]
  local set = redis.pcall('SET', KEYS[2], owner .. '0|' .. granted_at .. '|' .. details, 'NX', 'PX', ttl)
  if set and not set.err then return {granted_at} end
end
local ARGV = {'', 'acquire', owner, ttl, '0', details, ''}
${claims}`)

/** ARGV the start of the lock's value, up to and with the time of the grant. */
export const releaseScript = redisScript(`
local mine = ARGV[1]
local value = redis.pcall('GET', KEYS[2])
if type(value) == 'string' and string.sub(value, 1, #mine) == mine and redis.call('EXISTS', KEYS[1]) == 1 and
  redis.pcall('DEL', KEYS[2]) == 1 then
  return {'released'}
end
local owner, granted_at = string.match(mine, '^(.*|)0|([^|]*)|$')
local ARGV = {'', 'release', owner, '0', granted_at}
${claims}`)

/** KEYS session. Prolongs nothing. */
export const attachScript = redisScript(`
local found = redis.call('HMGET', KEYS[1], 'ttl', 'holder')
if not found[1] then return {} end
return {found[1], found[2], redis.call('PTTL', KEYS[1])}
`)

/**
 * KEYS session, then the locks of the claims; ARGV ttl, then the owner of each and the time of its grant here, empty if it
 * is not known. Prolongs what is there, and creates nothing. Answers with a digit for each claim: 1 kept, 0 missing, 2
 * another has it, 3 released by force, 4 granted once more by a late copy of the request (T84, late duplicates); behind the digits, if there
 * is a 3, with the operator's reason of each of them. Without the session, with nothing.
 */
export const keepAliveScript = redisScript(`${holding}
local session, ttl = KEYS[1], ARGV[1]
if redis.call('PEXPIRE', session, ttl) == 0 then return false end
local digits, reasons = {}, {}
for at = 2, #KEYS do
  local lock, owner, granted_at = KEYS[at], ARGV[2 * at - 2], ARGV[2 * at - 1]
  local mine, delay, other = held_by(lock, owner)
  local digit = '0'
  if mine and not is_grant(mine, owner, granted_at) then
    digit = '4'
  elseif mine then
    redis.call('PEXPIRE', lock, ttl + delay)
    digit = '1'
  elseif redis.call('HGET', session, owner) == 'force-released' then
    digit = '3'
    reasons[#reasons + 1] = redis.call('HGET', session, owner .. 'why') or ''
  elseif other and (type(other) ~= 'string' or string.sub(other, 1, #owner) ~= owner) then
    digit = '2'
  end
  digits[#digits + 1] = digit
end
if #reasons == 0 then return table.concat(digits) end
return {table.concat(digits), unpack(reasons)}
`)

/** KEYS locks. The time here, and for each lock its value and how long it lives. */
export const lookScript = redisScript(`
local time = redis.call('TIME')
local seen = {string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))}
for at = 1, #KEYS do
  local value = redis.pcall('GET', KEYS[at])
  if type(value) == 'table' then value = 'a key of another type' end
  seen[#seen + 1] = value
  seen[#seen + 1] = redis.call('PTTL', KEYS[at])
end
return seen
`)

/** Every new connection loads them before the first request. */
export const allScripts = [
  openScript,
  claimsScript,
  voteScript,
  releaseScript,
  attachScript,
  keepAliveScript,
  lookScript,
]
