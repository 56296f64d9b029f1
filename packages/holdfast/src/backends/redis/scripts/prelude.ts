/**
 * What every script starts with: the server's time and the tokens, both looked at only when they are needed.
 *
 * ARGV[1] says how tokens are drawn: `0` not at all, `1` from one mark for the whole database (the last of KEYS), `2`
 * from a mark per name, as a script on a Redis Cluster reaches one slot only. A token is the server's time in
 * microseconds, or one more than the last if that is not less; `%.0f`, because Lua prints large numbers as `1.79e+15`
 * (T69). It is drawn in the step that grants (T37), and survives the loss of all data, because the clock does (T38).
 */
export const prelude = `
local call, sub, match, floor = redis.call, string.sub, string.match, math.floor
local fencing = ARGV[1]
local nowUs, nowMs
local behindUs = 0

local function look_at_clock()
  if nowMs then return end
  local time = call('TIME')
  nowUs = time[1] * 1000000 + time[2]
  nowMs = floor(nowUs / 1000)
end

local function draw_token(lock)
  if fencing == '0' then return '' end
  local key = fencing == '1' and KEYS[#KEYS] or lock .. ':t'
  local last = tonumber(call('GET', key) or '0') or 0
  local token = nowUs
  if last >= token then
    token = last + 1
    if last - nowUs > behindUs then behindUs = last - nowUs end
  end
  local text = string.format('%.0f', token)
  if fencing == '1' then call('SET', key, text) else call('SET', key, text, 'PX', 86400000) end
  return text
end
`
