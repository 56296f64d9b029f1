/** Lua: the waiters of a name, and which of them is granted next. Part of `library.ts`. */
export const queue = `
  -- The waiter at a position, read at most once in a step: all parts of the step use the same table.
  function lib.waiter_at(n, position)
    local w = n.seen[position]
    if w ~= nil then return w end
    local record = call('HGET', n.state, 'q' .. position)
    if record then
      local who, dead_from, looks_at, channel, since, weight, mode, body =
        match(record, '^([^|]+|[^|]+)|(%d+)|(%d+)|([^|]*)|(%d+)|(%d+)|([^|]*)|(.*)$')
      w = { position = position, who = who, dead_from = tonumber(dead_from), looks_at = tonumber(looks_at), channel = channel,
        since = since, weight = tonumber(weight), mode = mode, body = body }
    end
    n.seen[position] = w or false
    return w
  end

  function lib.waiter(n, who)
    local position = n.tail > n.first and call('HGET', n.state, 'w:' .. who)
    local w = position and lib.waiter_at(n, tonumber(position))
    return w and w.who == who and w or nil
  end

  function lib.store(n, w, ...)
    call('HSET', n.state, 'q' .. w.position, w.who .. '|' .. w.dead_from .. '|' .. w.looks_at .. '|' .. w.channel .. '|' ..
      w.since .. '|' .. w.weight .. '|' .. w.mode .. '|' .. w.body, ...)
  end

  function lib.leave_queue(n, w)
    call('HDEL', n.state, 'q' .. w.position, 'w:' .. w.who)
    n.seen[w.position] = false
    w.has_left = true
  end

  -- Leaves from anywhere. Positions that were left in the middle of the queue are gaps: each end of one names the other end,
  -- so a gap of any length is passed in one step, and stores two fields. Answers with the position after the gap.
  function lib.give_up(n, w)
    lib.log(n.lock, 'gave-up', w.who, '', w.body)
    lib.leave_queue(n, w)
    if not n.gaps or w.position <= n.first then return w.position + 1 end
    local before, behind = n.gaps .. w.position - 1, n.gaps .. w.position + 1
    local ends = call('HMGET', n.state, before, behind)
    local from, to = tonumber(ends[1] or w.position), tonumber(ends[2] or w.position)
    local removed = call('HDEL', n.state, before, behind)
    lib.count_gap_fields(n, call('HSET', n.state, n.gaps .. from, to, n.gaps .. to, from) - removed)
    return to + 1
  end

  -- The last position of the gap that begins here.
  function lib.gap_end(n, position)
    return tonumber(n.gaps and call('HGET', n.state, n.gaps .. position) or position)
  end

  function lib.count_gap_fields(n, change)
    if change ~= 0 then call('HINCRBY', n.state, 'e', change) end
  end

  -- How many are queued, the dead that nothing has passed yet included. Each has two fields; all other fields of the hash
  -- are known or counted, so this costs the same whatever the length of the queue. Older clients do not count: then the queue
  -- is walked.
  function lib.queued(n)
    if n.tail > n.first and not n.gaps then return #lib.living(n) end
    local known = call('HMGET', n.state, 'e', 'f', 't', 'l', 'g', 'cap', 'hw', 'c', 'd')
    local others = tonumber(known[1] or 0)
    for i = 1, 9 do
      if known[i] then others = others + 1 end
    end
    if n.kind == 'several' then others = others + call('ZCARD', n.holders) end
    return (call('HLEN', n.state) - others) / 2
  end

  -- Whether as many are queued as the request allows. The dead at the front, and those behind the first that lives, do not count.
  function lib.is_full(n, most)
    if n.tail - n.first < most then return false end
    local head = lib.head(n)
    if head then lib.remove_dead_behind(n, head) end
    return lib.queued(n) >= most
  end

  function lib.stay_in_queue(n, w)
    lib.store(n, w, 'w:' .. w.who, w.position)
    n.seen[w.position] = w
    w.has_left = nil
  end

  -- The first living waiter; the dead before it leave. Each dead waiter is passed once, and each gap.
  function lib.head(n)
    while n.first < n.tail do
      local w = lib.waiter_at(n, n.first)
      if w and w.dead_from > nowMs then return w end
      local last = n.first
      if w then
        lib.log(n.lock, 'gave-up', w.who, '', w.body)
        lib.leave_queue(n, w)
      else
        last = lib.gap_end(n, n.first)
        if n.gaps then lib.count_gap_fields(n, -call('HDEL', n.state, n.gaps .. n.first, n.gaps .. last)) end
      end
      n.first = last + 1
      n.moved = true
    end
  end

  -- The living waiters, in order. The dead among them leave.
  function lib.living(n)
    local living, position = {}, n.first
    while position < n.tail do
      local w = lib.waiter_at(n, position)
      if not w then
        position = lib.gap_end(n, position) + 1
      elseif w.dead_from > nowMs then
        living[#living + 1] = w
        position = position + 1
      else
        position = lib.give_up(n, w)
      end
    end
    return living
  end

  -- The dead right behind a living waiter leave, a limited number at a time: they would all be passed by one grant.
  function lib.remove_dead_behind(n, w)
    local position = w.position + 1
    for _ = 1, n.gaps and MOST_DEAD or 0 do
      local other = position < n.tail and lib.waiter_at(n, position)
      if other and other.dead_from > nowMs or position >= n.tail then return end
      position = other and lib.give_up(n, other) or lib.gap_end(n, position) + 1
    end
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
      lib.leave_queue(n, w)
      local token, unusable = draw_token(n.lock, nowUs)
      if not token then
        lib.stay_in_queue(n, w)
        n.unusable = unusable
        return
      end
      n.first = n.first + 1
      n.moved = true
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
      if n.had_queue or n.moved then call('HDEL', n.state, 'f', 't', 'l') end
      n.first, n.tail = 0, 0
      if n.kind ~= 'several' then
        if n.data then call('HDEL', n.state, 'cap') else call('DEL', n.state) end
      end
      return
    end
    if n.moved then call('HSET', n.state, 'f', n.first) end
    local foreign = n.kind == 'foreign'
    local due = foreign and POLL_MS or lib.due(n)
    if nowMs + due + HINT_MARGIN_MS < w.looks_at then
      w.looks_at = nowMs + due
      lib.store(n, w)
      call('PUBLISH', w.channel, 'h|' .. sub(w.who, 1, 22) .. '|' .. floor(due) .. '|' .. (foreign and 1 or 0))
    end
  end

  -- What a waiter is told: whether it is the first, when something can happen, and whether a foreign client holds.
  function lib.tell(n, w, ...)
    if n.unusable then return n.unusable end
    local is_head = w.position == n.first
    local due = lib.due(n)
    local foreign = n.kind == 'foreign'
    w.looks_at = nowMs + (foreign and is_head and POLL_MS or math.max(due, 0))
    lib.store(n, w, ...)
    return 'w|' .. (is_head and 1 or 0) .. '|' .. floor(due) .. '|' .. (foreign and 1 or 0)
  end

  -- A new waiter at the end of the queue, which it may begin.
  function lib.join(n, is_first, w, capacity)
    if is_first then
      n.first, n.tail = 0, 0
      -- With the time: one attempt can begin two queues (T84).
      local queue = sub(w.who, 1, 22) .. string.format('.%.0f', nowUs)
      n.gaps = 's' .. queue .. ':'
      call('HSET', n.state, 'f', 0, 'l', queue, 'cap', capacity)
    elseif n.moved then
      call('HSET', n.state, 'f', n.first)
    end
    w.position = n.tail
    n.tail = n.tail + 1
    local told = lib.tell(n, w, 't', n.gaps and n.tail .. '.00' or n.tail, 'w:' .. w.who, w.position)
    lib.keep(n, w.dead_from - nowMs)
    lib.log(n.lock, 'waiting', w.who, '', w.body)
    return told
  end
`
