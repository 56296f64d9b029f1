/** Lua: what is stored for a name, and how holders come and go. Part of `library.ts`. */
export const holders = `
  -- How long the lock key lives: asked only when it matters. Negative: for ever.
  function lib.left(n)
    if not n.left then n.left = n.kind == 'free' and 0 or call('PTTL', n.lock) end
    return n.left
  end

  function lib.open(lock)
    local state = lock .. ':s'
    -- A key of another type answers with an error, which comes as a table: it is not ours.
    local value = redis.pcall('GET', lock)
    local fields = redis.pcall('HMGET', state, 'g', 'cap', 'hw', 'c', 'd')
    local is_foreign, is_unusable = type(value) == 'table', fields.err ~= nil
    if is_unusable then fields = {} end
    local generation, cap = fields[1], tonumber(fields[2] or nil)
    -- first: the first living waiter, false if there is none, nil if that is not known yet. A queue has a capacity.
    local n = { lock = lock, state = state, holders = lock .. ':h', queue = lock .. ':q', held = 0, closed = 0, seen = {},
      value = value, is_unusable = is_unusable, capacity = cap, data = fields[5] }
    if not cap then n.first = false end
    if not value then
      n.kind = 'free'
    elseif is_foreign then
      n.kind = 'foreign'
    else
      if sub(value, 1, 4) == 'hf1|' then
        local who, delay = match(value, '^hf1|([^|]+|[^|]+)|(%d+)|')
        n.who, n.delay = who, tonumber(delay)
        n.kind = (n.delay > 0 and lib.left(n) <= n.delay) and 'closed' or 'exclusive'
      elseif value == 'hf1c' then
        n.kind = 'closed'
      elseif sub(value, 1, 5) == 'hf1m|' then
        n.kind = generation == sub(value, 6) and 'several' or 'closed'
      else
        n.kind = 'foreign'
      end
    end
    if is_watched() then lib.notice_end(n) end
    if n.kind == 'several' then
      n.held, n.closed = tonumber(fields[3] or 0), tonumber(fields[4] or 0)
      lib.expire_holders(n)
    elseif generation then
      lib.drop_holders(n)
    end
    if n.kind == 'exclusive' then n.capacity = LOCK end
    return n
  end

  -- The holders of several whose time is up. Their lock delays begin where their time ended.
  function lib.expire_holders(n)
    local over = call('ZRANGEBYSCORE', n.holders, '-inf', nowMs, 'WITHSCORES')
    if #over == 0 then return end
    for i = 1, #over, 2 do
      local who = over[i]
      local weight, delay = match(call('HGET', n.state, 'h:' .. who) or '', '^(%d+)|[^|]*|%d*|%d+|(%d+)|')
      lib.log_holder(n, 'expired', who)
      n.held = n.held - (tonumber(weight) or 0)
      local closed = tonumber(over[i + 1]) + (tonumber(delay) or 0)
      if tonumber(delay or 0) > 0 and closed > n.closed then n.closed = closed end
      call('ZREM', n.holders, who)
      call('HDEL', n.state, 'h:' .. who)
    end
    lib.after_leaving(n)
  end

  -- Some of several have left: what remains is recorded, or the name becomes free or closed.
  function lib.after_leaving(n)
    if call('ZCARD', n.holders) > 0 then
      call('HSET', n.state, 'hw', n.held, 'c', n.closed)
      return
    end
    call('HDEL', n.state, 'g', 'hw', 'c')
    n.held = 0
    if n.closed > nowMs then
      lib.close_until(n, n.closed)
    else
      call('DEL', n.lock)
      n.kind, n.left = 'free', nil
    end
  end

  function lib.close_until(n, untilMs)
    n.left = untilMs - nowMs
    call('SET', n.lock, 'hf1c', 'PX', n.left)
    n.kind, n.who = 'closed', nil
  end

  -- The lock key is gone, or not ours: the holders of several that it stood for hold nothing any more. They are found by their
  -- fields in the state, because the set of their times has gone together with the lock key.
  function lib.drop_holders(n)
    for _, field in ipairs(call('HKEYS', n.state)) do
      if sub(field, 1, 2) == 'h:' then
        if is_watched() then
          local token, body = match(call('HGET', n.state, field), '^%d+|[^|]*|(%d*)|%d+|(.*)$')
          lib.log(n.lock, lib.ending(n.lock), sub(field, 3), token, body)
        end
        call('HDEL', n.state, field)
      end
    end
    call('DEL', n.holders)
    call('HDEL', n.state, 'g', 'hw', 'c')
    if not lib.head(n) then
      call('HDEL', n.state, 'cap')
      n.capacity = nil
    end
  end

  -- The state must outlive everything that it describes; with data it stays.
  function lib.keep(n, ms)
    if n.data then return end
    -- A quarter more, so that not every newcomer has to prolong it.
    -- Watchers, also one that comes back, find the expired holders of several there.
    if is_watched() then ms = ms + WATCHED_FOR_MS end
    for _, key in ipairs(n.first == false and { n.state } or { n.state, n.queue }) do
      if call('PTTL', key) < ms then call('PEXPIRE', key, ms + floor(ms / 4)) end
    end
  end

  -- The token is drawn before anything is changed: there may be none. Answers with what the grant is known by.
  function lib.grant(n, token, who, body, weight, mode, ttl_ms)
    local delay = tonumber(match(body, '^(%d+)|'))
    if mode == 'exclusive' then
      n.value = 'hf1|' .. who .. '|' .. body .. '|' .. token .. '|' .. now
      n.kind, n.who, n.delay, n.left, n.capacity = 'exclusive', who, delay, ttl_ms + delay, LOCK
      n.is_stale = false
      call('SET', n.lock, n.value, 'PX', n.left)
      lib.log(n.lock, 'acquired', who, token, body)
      lib.remember(n, ttl_ms)
      return is_fenced and token or now
    end
    if n.kind ~= 'several' then
      local generation = sub(who, 1, 22)
      n.kind, n.value, n.left, n.closed = 'several', 'hf1m|' .. generation, 0, 0
      n.is_stale = false
      -- Part of what was stored for earlier holders may have been deleted.
      call('DEL', n.holders)
      call('HSET', n.state, 'g', generation, 'cap', n.capacity)
    end
    n.held = n.held + weight
    call('HSET', n.state, 'hw', n.held, 'h:' .. who, weight .. '|' .. mode .. '|' .. token .. '|' .. nowMs .. '|' .. body)
    lib.hold(n, who, ttl_ms, delay)
    lib.log(n.lock, 'acquired', who, token, body)
    lib.remember(n, ttl_ms)
    return is_fenced and token or tostring(nowMs)
  end

  -- One of several holds for that long from now.
  function lib.hold(n, who, ttl_ms, delay)
    call('ZADD', n.holders, nowMs + ttl_ms, who)
    local left = ttl_ms + delay
    if lib.left(n) < left then
      n.left = left
      call('SET', n.lock, n.value, 'PX', left)
    end
    if call('PTTL', n.holders) < left then call('PEXPIRE', n.holders, left) end
    lib.keep(n, left)
  end

  -- The record of one of several holders, and when its time ends. An attempt that is not in the set of times holds
  -- nothing, whatever else is left of it.
  function lib.record(n, who)
    local ends = n.kind == 'several' and call('ZSCORE', n.holders, who)
    if not ends then return nil end
    return call('HGET', n.state, 'h:' .. who), tonumber(ends)
  end

  -- A digest tells a foreign holder from the next one; of a key of another type there is nothing.
  function lib.digest(n)
    return n.kind == 'foreign' and type(n.value) == 'string' and redis.sha1hex(n.value) or ''
  end

  -- Its grant, if it holds: the id of the grant, and how much of its time is left.
  function lib.holding(n, who)
    if n.kind == 'exclusive' and n.who == who then
      local token, at = match(n.value, '|(%d*)|([^|]+)$', -40)
      return is_fenced and token or at, lib.left(n) - n.delay
    end
    local record, ends = lib.record(n, who)
    if not record then return nil end
    local token, at = match(record, '^%d+|[^|]*|(%d*)|(%d+)|')
    -- A record that cannot be read is neither held nor lost.
    if not at then error('what is stored of a holder of ' .. n.lock .. ' cannot be read') end
    return is_fenced and token or at, ends - nowMs
  end

  function lib.holds(n, who, grant)
    local held = lib.holding(n, who)
    return held and (grant == '' or held == grant)
  end

  function lib.granted(n, grant, left)
    return { 'g', grant, left, n.data or nil }
  end

  function lib.why_lost(n, who)
    if lib.holding(n, who) then return 'lreplaced' end
    local mark = n.lock .. ':x:' .. who
    if redis.pcall('GET', mark) == 'force-released' then
      local detail = redis.pcall('GET', mark .. ':why')
      return type(detail) == 'string' and { 'l', 'force-released', detail } or 'lforce-released'
    end
    if n.kind == 'closed' and n.who == who then return 'lexpired' end
    if n.kind == 'exclusive' or n.kind == 'foreign' then return 'ltaken-over' end
    if n.kind == 'several' and n.held + 1 > n.capacity then return 'ltaken-over' end
    return 'ldeleted'
  end

  -- Gives up what it holds; nil if it holds nothing.
  function lib.let_go(n, who, keep_ms, cause)
    if n.kind == 'exclusive' and n.who == who then
      lib.log_holder(n, cause or 'released', who)
      lib.forget(n)
      if keep_ms > 0 then
        lib.close_until(n, nowMs + keep_ms)
      else
        -- The next holder's value replaces it; if there is none, finish deletes it.
        n.is_stale = true
        n.kind, n.who, n.left = 'free', nil, nil
      end
      n.capacity = lib.head(n) and LOCK or nil
      return true
    end
    local record = lib.record(n, who)
    if not record then return nil end
    lib.log_holder(n, cause or 'released', who)
    n.held = n.held - tonumber(match(record, '^(%d+)|'))
    call('ZREM', n.holders, who)
    call('HDEL', n.state, 'h:' .. who)
    if keep_ms > 0 and nowMs + keep_ms > n.closed then
      n.closed = nowMs + keep_ms
      if lib.left(n) < keep_ms then
        n.left = keep_ms
        call('SET', n.lock, n.value, 'PX', keep_ms)
        lib.keep(n, keep_ms)
        if call('PTTL', n.holders) < keep_ms then call('PEXPIRE', n.holders, keep_ms) end
      end
    end
    lib.after_leaving(n)
    return true
  end

  function lib.prolong(n, who, ttl_ms)
    if n.kind == 'exclusive' and n.who == who then
      n.left = ttl_ms + n.delay
      call('PEXPIRE', n.lock, n.left)
      return true
    end
    local record = lib.record(n, who)
    if not record then return false end
    lib.hold(n, who, ttl_ms, tonumber(match(record, '^%d+|[^|]*|%d*|%d+|(%d+)|')))
    return true
  end
`
