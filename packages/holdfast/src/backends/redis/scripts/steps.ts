/** Lua: what a request asks for, each as one step. Part of `library.ts`. */
export const steps = `
  function lib.acquire(lock, who, body, weight, capacity, mode, ttl_ms, channel)
    if call('EXISTS', lock .. ':x:' .. who) == 1 then return 'x' end
    local n = lib.open(lock)
    local token, left = lib.holding(n, who)
    if token then return lib.granted(n, token, left) end
    local waiter = call('HGET', n.state, 'w:' .. who)
    if waiter then
      if channel then
        call('HSET', n.state, 'e:' .. who, (nowMs + ttl_ms) .. '|' .. nowMs,
          'w:' .. who, match(waiter, '^%d+|') .. channel .. match(waiter, '^%d+|[^|]*(|.*)$'))
        lib.keep(n, ttl_ms)
      end
      lib.settle(n)
      lib.finish(n)
      token, left = lib.holding(n, who)
      if token then return lib.granted(n, token, left) end
      if channel and call('HEXISTS', n.state, 'w:' .. who) == 1 then return lib.waiting(n, who) end
      return 'b'
    end
    lib.forget_dead_line(n)
    if n.capacity and n.capacity ~= capacity then return 'm' .. n.capacity end
    lib.settle(n)
    local ahead = lib.head(n)
    if not ahead and (n.kind == 'free' or (n.kind == 'several' and n.closed <= nowMs)) and n.held + weight <= capacity then
      n.capacity = capacity
      token = lib.grant(n, who, body, weight, mode, ttl_ms)
      lib.finish(n)
      return lib.granted(n, token, -1)
    end
    if not channel then
      lib.finish(n)
      return n.kind == 'closed' and 'b' .. n.left or 'b'
    end
    if not ahead then
      n.first, n.tail = 0, 0
      call('HSET', n.state, 'f', 0, 'cap', capacity)
    elseif n.moved then
      call('HSET', n.state, 'f', n.first)
    end
    local place = n.tail
    n.tail = place + 1
    local told, looks_at = lib.tell(n, not ahead)
    call('HSET', n.state, 't', n.tail, 'q' .. place, who, 'e:' .. who, (nowMs + ttl_ms) .. '|' .. looks_at,
      'w:' .. who, place .. '|' .. channel .. '|' .. nowMs .. '|' .. weight .. '|' .. mode .. '|' .. body)
    lib.keep(n, ttl_ms)
    return told
  end

  function lib.release(lock, who, keep_ms)
    local n = lib.open(lock)
    local released = lib.let_go(n, who, keep_ms)
    lib.settle(n)
    lib.finish(n)
    return released and 'r' or 'n'
  end

  function lib.abandon(lock, who, mark_ms)
    call('SET', lock .. ':x:' .. who, 'abandoned', 'PX', mark_ms)
    local n = lib.open(lock)
    if not lib.let_go(n, who, 0) then lib.leave_line(n, who) end
    lib.settle(n)
    lib.finish(n)
    return 'x'
  end

  function lib.renew(lock, who, ttl_ms)
    local n = lib.open(lock)
    if not lib.prolong(n, who, ttl_ms) then return lib.why_lost(n, who) end
    return 'k'
  end

  -- The heartbeat of a waiter; if its turn has come meanwhile, what it holds is prolonged as well.
  function lib.beat(lock, who, ttl_ms)
    local n = lib.open(lock)
    if call('HEXISTS', n.state, 'w:' .. who) == 1 then
      local looks_at = match(call('HGET', n.state, 'e:' .. who) or '', '|(%d+)$') or nowMs
      call('HSET', n.state, 'e:' .. who, (nowMs + ttl_ms) .. '|' .. looks_at)
      lib.keep(n, ttl_ms)
    end
    lib.settle(n)
    lib.finish(n)
    local token = lib.holding(n, who)
    if token then
      lib.prolong(n, who, ttl_ms)
      return lib.granted(n, token, -1)
    end
    if call('HEXISTS', n.state, 'w:' .. who) == 1 then return lib.waiting(n, who) end
    return lib.why_lost(n, who)
  end

  -- A look by somebody who waits: what time has brought about is done, and prolongs nothing.
  function lib.look(lock, who)
    local n = lib.open(lock)
    lib.settle(n)
    lib.finish(n)
    local token, left = lib.holding(n, who)
    if token then return lib.granted(n, token, left) end
    if call('HEXISTS', n.state, 'w:' .. who) == 1 then return lib.waiting(n, who) end
    return lib.why_lost(n, who)
  end
`
