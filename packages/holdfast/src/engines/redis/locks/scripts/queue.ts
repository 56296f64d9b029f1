/**
 * Lua: the waiters of a name. `settle` hands a free name over: it grants to the first waiters and publishes each grant on the channel
 * of the waiter's process. Part of `library.ts`.
 */
export const queue = `
  -- A waiter by its record, read at most once in a step: all parts of the step use the same table.
  local function waiter_of(n, who)
    local w = n.seen[who]
    if w ~= nil then return w end
    local record = call('HGET', n.state, 'w:' .. who)
    if record then
      local dead_from, looks_at, channel, since, weight, mode, body =
        match(record, '^(%d+)|(%d+)|([^|]*)|(%d+)|(%d+)|([^|]*)|(.*)$')
      w = { who = who, dead_from = tonumber(dead_from), looks_at = tonumber(looks_at), channel = channel, since = since,
        weight = tonumber(weight), mode = mode, body = body }
    end
    n.seen[who] = w or false
    return w
  end

  function lib.waiter(n, who)
    local is_queued = n.first ~= false and call('ZSCORE', n.queue, who)
    return is_queued and waiter_of(n, who) or nil
  end

  function lib.store(n, w)
    call('HSET', n.state, 'w:' .. w.who, w.dead_from .. '|' .. w.looks_at .. '|' .. w.channel .. '|' .. w.since .. '|' ..
      w.weight .. '|' .. w.mode .. '|' .. w.body)
  end

  function lib.leave_queue(n, who)
    call('ZREM', n.queue, who)
    call('HDEL', n.state, 'w:' .. who)
    local w = n.seen[who]
    if w then w.has_left = true end
    n.seen[who] = false
    if n.first and n.first.who == who then n.first = nil end
  end

  function lib.give_up(n, w)
    lib.log(n.lock, 'gave-up', w.who, '', w.body)
    lib.leave_queue(n, w.who)
  end

  local function is_alive(n, who)
    local w = waiter_of(n, who)
    if w and w.dead_from > nowMs then return w end
    if w then lib.give_up(n, w) else lib.leave_queue(n, who) end
  end

  -- The first living waiter; the dead before it leave. False if there is none.
  function lib.head(n)
    while n.first == nil do
      local found = call('ZRANGE', n.queue, 0, 0, 'WITHSCORES')
      local w = found[1] and is_alive(n, found[1])
      if w then w.position = found[2] end
      if w or not found[1] then n.first = w or false end
    end
    return n.first
  end

  -- The living waiters, in order. The dead among them leave.
  function lib.living(n)
    local living = {}
    if n.first == false then return living end
    for _, who in ipairs(call('ZRANGE', n.queue, 0, -1)) do living[#living + 1] = is_alive(n, who) end
    return living
  end

  -- The dead right behind a living waiter leave, a limited number at a time: they would all be passed by one grant.
  function lib.remove_dead_behind(n, w)
    local rank = call('ZRANK', n.queue, w.who)
    for _ = 1, MOST_DEAD do
      local who = call('ZRANGE', n.queue, rank + 1, rank + 1)[1]
      if not who or is_alive(n, who) then return end
    end
  end

  -- Whether as many are queued as the request allows. The dead at the front, and those behind the first that lives, do not count.
  function lib.is_full(n, most)
    local head = lib.head(n)
    if not head then return most == 0 end
    if call('ZCARD', n.queue) < most then return false end
    lib.remove_dead_behind(n, head)
    return call('ZCARD', n.queue) >= most
  end

  -- A queue of dead waiters only has no capacity.
  function lib.forget_dead_queue(n)
    if n.capacity and n.kind ~= 'exclusive' and n.kind ~= 'several' and not lib.head(n) then n.capacity = nil end
  end

  -- Whether a request that fits would be granted.
  function lib.is_open(n)
    return n.kind == 'free' or (n.kind == 'several' and n.closed <= nowMs)
  end

  -- Grants to the first waiters, and tells each through the channel of its process.
  function lib.settle(n)
    while lib.is_open(n) do
      local w = lib.head(n)
      if not w or n.held + w.weight > n.capacity then return end
      -- First, because it is never refused, and then a server whose memory is full refuses nothing else.
      lib.leave_queue(n, w.who)
      local token, unusable = draw_token(n.lock, nowUs)
      if not token then
        call('ZADD', n.queue, w.position, w.who)
        lib.store(n, w)
        n.seen[w.who], n.first, w.has_left = w, w, nil
        n.unusable = unusable
        return
      end
      local grant = lib.grant(n, token, w.who, w.body, w.weight, w.mode, w.dead_from - nowMs)
      call('PUBLISH', w.channel, 'g|' .. sub(w.who, 1, 22) .. '|' .. grant .. '|' .. (n.data and '1' .. n.data or '0'))
    end
  end

  -- How long until something can happen by itself.
  function lib.due(n)
    if n.kind == 'several' then
      if n.closed > nowMs then return n.closed - nowMs end
      local soonest = call('ZRANGE', n.holders, 0, 0, 'WITHSCORES')
      return soonest[2] and math.max(0, tonumber(soonest[2]) - nowMs) or 0
    end
    return lib.left(n)
  end

  -- The end of every step: the new first waiter learns when to look, if that is earlier than it knows.
  function lib.finish(n)
    if n.is_stale then call('DEL', n.lock) end
    if n.is_unusable then return end
    local w = lib.head(n)
    if not w then
      if n.kind ~= 'several' then
        if n.data then call('HDEL', n.state, 'cap') else call('DEL', n.state) end
      end
      return
    end
    local foreign = n.kind == 'foreign'
    local due = foreign and POLL_MS or lib.due(n)
    if nowMs + due + HINT_MARGIN_MS < w.looks_at then
      w.looks_at = nowMs + due
      lib.store(n, w)
      call('PUBLISH', w.channel, 'h|' .. sub(w.who, 1, 22) .. '|' .. floor(due) .. '|' .. (foreign and 1 or 0))
    end
  end

  -- The answer to a waiter: whether it is the first, when something can happen, and whether a foreign client holds.
  function lib.tell(n, w)
    if n.unusable then return n.unusable end
    local is_head = lib.head(n) == w
    local due = lib.due(n)
    local foreign = n.kind == 'foreign'
    w.looks_at = nowMs + (foreign and is_head and POLL_MS or math.max(due, 0))
    lib.store(n, w)
    return 'w|' .. (is_head and 1 or 0) .. '|' .. floor(due) .. '|' .. (foreign and 1 or 0)
  end

  -- A new waiter at the end of the queue, which it may begin. A server whose memory is full refuses the first write.
  function lib.join(n, w, capacity)
    local last = lib.head(n) and call('ZREVRANGE', n.queue, 0, 0, 'WITHSCORES')[2]
    if not last then
      call('HSET', n.state, 'cap', capacity)
      -- The rest of the queue has no records.
      call('DEL', n.queue)
      n.first = w
    end
    w.position = (last or 0) + 1
    call('ZADD', n.queue, w.position, w.who)
    n.seen[w.who] = w
    local told = lib.tell(n, w)
    lib.keep(n, w.dead_from - nowMs)
    lib.log(n.lock, 'waiting', w.who, '', w.body)
    return told
  end
`
