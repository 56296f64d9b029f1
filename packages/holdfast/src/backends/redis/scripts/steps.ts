/** Lua: what a request asks for, each as one step. Part of `library.ts`. */
export const steps = `
  function lib.acquire(lock, who, body, weight, capacity, mode, ttl_ms, channel, most_waiters)
    if call('EXISTS', lock .. ':x:' .. who) == 1 then return 'x' end
    local n = lib.open(lock)
    local grant, left = lib.holding(n, who)
    if grant then return lib.granted(n, grant, left) end
    if n.is_unusable then return 'y:s' end
    local w = lib.waiter(n, who)
    if w then
      if channel then
        w.dead_from, w.looks_at, w.channel = nowMs + ttl_ms, nowMs, channel
        lib.store(n, w)
        lib.keep(n, ttl_ms)
      end
      lib.settle(n)
      lib.finish(n)
      grant, left = lib.holding(n, who)
      if grant then return lib.granted(n, grant, left) end
      return channel and not w.has_left and lib.tell(n, w) or 'b'
    end
    lib.forget_dead_line(n)
    if n.capacity and n.capacity ~= capacity then
      if n.moved then call('HSET', n.state, 'f', n.first) end
      return 'm' .. n.capacity
    end
    lib.settle(n)
    local ahead = lib.head(n)
    if not ahead and (n.kind == 'free' or (n.kind == 'several' and n.closed <= nowMs)) and n.held + weight <= capacity then
      local token, unusable = draw_token(lock)
      if not token then
        lib.finish(n)
        return unusable
      end
      n.capacity = capacity
      local grant = lib.grant(n, token, who, body, weight, mode, ttl_ms)
      lib.finish(n)
      return lib.granted(n, grant, -1)
    end
    if not channel then
      lib.finish(n)
      return n.kind == 'closed' and 'b' .. lib.left(n) or 'b'
    end
    if most_waiters and lib.is_full(n, most_waiters) then
      lib.finish(n)
      return 'f'
    end
    if not ahead then
      n.first, n.tail = 0, 0
      -- With the time: one attempt can begin two queues (T84).
      local line = sub(who, 1, 22) .. string.format('.%.0f', nowUs)
      n.gaps = 's' .. line .. ':'
      call('HSET', n.state, 'f', 0, 'l', line, 'cap', capacity)
    elseif n.moved then
      call('HSET', n.state, 'f', n.first)
    end
    w = { place = n.tail, who = who, dead_from = nowMs + ttl_ms, channel = channel, since = nowMs, weight = weight,
      mode = mode, body = body }
    n.tail = n.tail + 1
    local told = lib.tell(n, w, 't', n.gaps and n.tail .. '.00' or n.tail, 'w:' .. who, w.place)
    lib.keep(n, ttl_ms)
    lib.log(lock, 'waiting', who, '', body)
    return told
  end

  -- A server whose memory is full lets a script go on once it has written. Giving up, and keeping what one has, must be
  -- possible then as well, so a write comes first that is never refused, and that does nothing: there is no such field.
  function lib.write_also_when_full(lock)
    redis.pcall('HDEL', lock .. ':s', '-')
  end

  function lib.release(lock, who, grant, keep_ms)
    if keep_ms > 0 then lib.write_also_when_full(lock) end
    local n = lib.open(lock)
    local released = lib.holds(n, who, grant) and lib.let_go(n, who, keep_ms)
    lib.settle(n)
    lib.finish(n)
    return released and 'r' or 'n'
  end

  function lib.abandon(lock, who, mark_ms)
    lib.write_also_when_full(lock)
    call('SET', lock .. ':x:' .. who, 'abandoned', 'PX', mark_ms)
    local n = lib.open(lock)
    if not lib.let_go(n, who, 0) then
      local w = lib.waiter(n, who)
      if w then lib.give_up(n, w) end
    end
    lib.settle(n)
    lib.finish(n)
    return 'x'
  end

  function lib.renew(lock, who, grant, ttl_ms)
    lib.write_also_when_full(lock)
    local n = lib.open(lock)
    if not lib.holds(n, who, grant) then return lib.why_lost(n, who) end
    lib.prolong(n, who, ttl_ms)
    return 'k'
  end

  -- The heartbeat of a waiter; if its turn has come meanwhile, what it holds is prolonged as well.
  function lib.beat(lock, who, ttl_ms)
    lib.write_also_when_full(lock)
    local n = lib.open(lock)
    local w = lib.waiter(n, who)
    if w then
      w.dead_from = nowMs + ttl_ms
      lib.store(n, w)
      lib.keep(n, ttl_ms)
      lib.remove_dead_behind(n, w)
    end
    lib.settle(n)
    lib.finish(n)
    local grant = lib.holding(n, who)
    if grant then
      lib.prolong(n, who, ttl_ms)
      return lib.granted(n, grant, -1)
    end
    return w and not w.has_left and lib.tell(n, w) or lib.why_lost(n, who)
  end

  -- A look by somebody who waits: what time has brought about is done, and prolongs nothing.
  function lib.look(lock, who)
    local n = lib.open(lock)
    local w = lib.waiter(n, who)
    lib.settle(n)
    lib.finish(n)
    local grant, left = lib.holding(n, who)
    if grant then return lib.granted(n, grant, left) end
    return w and not w.has_left and lib.tell(n, w) or lib.why_lost(n, who)
  end
`
