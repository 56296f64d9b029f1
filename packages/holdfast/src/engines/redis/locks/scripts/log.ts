import { KEPT_EVENTS } from '../../../../kit/follow-log.ts'

/** Lua: how a step tells watchers of what it does. Part of `library.ts`; the layout is in `event-log.ts`. */
export const log = `
  local watched, has_woken

  -- Asked at most once in a call. What is denied is not watched.
  local function is_watched()
    if watched == nil then watched = watch and redis.pcall('EXISTS', watch) == 1 end
    return watched
  end

  function lib.log(lock, kind, who, token, body)
    if not is_watched() then return end
    local event = cjson.encode({ kind, sub(who, 1, 22), token or '', lock, body or '' })
    local added = redis.pcall('XADD', watch .. ':log', 'NOMKSTREAM', 'MAXLEN', '~', ${KEPT_EVENTS}, '*', 'e', event)
    -- An event that cannot be written ends the log: watchers find a gap.
    if type(added) ~= 'string' then
      redis.pcall('DEL', watch)
      watched = false
    end
    if not has_woken then redis.pcall('PUBLISH', match(watch, 'holdfast:.*'), '') end
    has_woken = true
  end

  -- A holder as watchers are told of it: token, body, and when it was granted.
  function lib.shown(n, who)
    if n.kind == 'exclusive' and n.who == who then
      local body, token, at = match(n.value, '^hf1|[^|]+|[^|]+|(.*)|(%d*)|([^|]+)$')
      return token, body, at
    end
    return match(lib.record(n, who) or '', '^%d+|[^|]*|(%d*)|%d+|(.*)$')
  end

  function lib.log_holder(n, kind, who)
    if is_watched() then lib.log(n.lock, kind, who, lib.shown(n, who)) end
  end

  -- From now on the end of this holder, or of one of several, is found.
  function lib.remember(n, left)
    if not is_watched() then return end
    if n.kind == 'exclusive' then
      local token, body, at = lib.shown(n, n.who)
      redis.pcall('HSET', watch .. ':held', n.lock, sub(n.who, 1, 22) .. '|' .. token .. '|' .. at .. '|' .. body)
      redis.pcall('ZADD', watch .. ':due', nowMs + left, n.lock)
    else
      redis.pcall('ZADD', watch .. ':due', 'LT', nowMs + left, n.lock)
    end
  end

  function lib.forget(n)
    if not is_watched() then return end
    redis.pcall('HDEL', watch .. ':held', n.lock)
    redis.pcall('ZREM', watch .. ':due', n.lock)
  end

  -- How a holder has ended whose key is gone: before its time is up, it was deleted.
  function lib.ending(lock)
    local due = redis.pcall('ZSCORE', watch .. ':due', lock)
    return type(due) == 'string' and tonumber(due) > nowMs and 'ended' or 'expired'
  end

  -- An exclusive holder is over, and no step has told of it.
  function lib.notice_end(n)
    local known = redis.pcall('HGET', watch .. ':held', n.lock)
    if type(known) ~= 'string' then return end
    local id, token, at, body = match(known, '^([^|]*)|(%d*)|([^|]*)|(.*)$')
    if n.kind == 'exclusive' and sub(n.who, 1, 22) == id then
      local token_now, _, at_now = lib.shown(n, n.who)
      if token_now == token and at_now == at then return end
    end
    lib.log(n.lock, n.kind == 'closed' and 'expired' or lib.ending(n.lock), id, token, body)
    redis.pcall('HDEL', watch .. ':held', n.lock)
  end

  -- Tells of what is over, and says when to look again.
  function lib.look_for_watchers(lock)
    local n = lib.open(lock)
    lib.finish(n)
    if n.kind == 'exclusive' then
      local left = lib.left(n) - n.delay
      return lib.remember(n, left < 0 and 86400000 or left)
    end
    local soonest = n.kind == 'several' and call('ZRANGE', n.holders, 0, 0, 'WITHSCORES')[2]
    if soonest then
      lib.keep(n, soonest - nowMs)
      call('ZADD', watch .. ':due', soonest, lock)
    else
      call('ZREM', watch .. ':due', lock)
    end
  end
`
