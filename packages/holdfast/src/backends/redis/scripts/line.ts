/** Lua: those who wait for a name, and whose turn it is. Part of `library.ts`. */
export const line = `
  -- Who stands at a place, read at most once in a step: all parts of the step speak of the same table.
  function lib.waiter_at(n, place)
    local w = n.seen[place]
    if w ~= nil then return w end
    local record = call('HGET', n.state, 'q' .. place)
    if record then
      local who, dead_from, looks_at, channel, since, weight, mode, body =
        match(record, '^([^|]+|[^|]+)|(%d+)|(%d+)|([^|]*)|(%d+)|(%d+)|([^|]*)|(.*)$')
      w = { place = place, who = who, dead_from = tonumber(dead_from), looks_at = tonumber(looks_at), channel = channel,
        since = since, weight = tonumber(weight), mode = mode, body = body }
    end
    n.seen[place] = w or false
    return w
  end

  function lib.waiter(n, who)
    local place = n.tail > n.first and call('HGET', n.state, 'w:' .. who)
    local w = place and lib.waiter_at(n, tonumber(place))
    return w and w.who == who and w or nil
  end

  function lib.store(n, w, ...)
    call('HSET', n.state, 'q' .. w.place, w.who .. '|' .. w.dead_from .. '|' .. w.looks_at .. '|' .. w.channel .. '|' ..
      w.since .. '|' .. w.weight .. '|' .. w.mode .. '|' .. w.body, ...)
  end

  function lib.leave_line(n, w)
    call('HDEL', n.state, 'q' .. w.place, 'w:' .. w.who)
    n.seen[w.place] = false
    w.has_left = true
  end

  -- Leaves from anywhere. Positions that were left in the middle of the queue are gaps: each end of one names the other end,
  -- so a gap of any length is passed in one step, and stores two fields. Answers with the position after the gap.
  function lib.give_up(n, w)
    lib.log(n.lock, 'gave-up', w.who, '', w.body)
    lib.leave_line(n, w)
    if not n.gaps or w.place <= n.first then return w.place + 1 end
    local before, behind = n.gaps .. w.place - 1, n.gaps .. w.place + 1
    local ends = call('HMGET', n.state, before, behind)
    local from, to = tonumber(ends[1] or w.place), tonumber(ends[2] or w.place)
    local removed = call('HDEL', n.state, before, behind)
    lib.count_gap_fields(n, call('HSET', n.state, n.gaps .. from, to, n.gaps .. to, from) - removed)
    return to + 1
  end

  -- The last position of the gap that begins here.
  function lib.gap_end(n, place)
    return tonumber(n.gaps and call('HGET', n.state, n.gaps .. place) or place)
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

  function lib.stay_in_line(n, w)
    lib.store(n, w, 'w:' .. w.who, w.place)
    n.seen[w.place] = w
    w.has_left = nil
  end

  -- The first in line who is alive; the dead before it leave. Each dead waiter is passed once, and each gap.
  function lib.head(n)
    while n.first < n.tail do
      local w = lib.waiter_at(n, n.first)
      if w and w.dead_from > nowMs then return w end
      local last = n.first
      if w then
        lib.log(n.lock, 'gave-up', w.who, '', w.body)
        lib.leave_line(n, w)
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
    local living, place = {}, n.first
    while place < n.tail do
      local w = lib.waiter_at(n, place)
      if not w then
        place = lib.gap_end(n, place) + 1
      elseif w.dead_from > nowMs then
        living[#living + 1] = w
        place = place + 1
      else
        place = lib.give_up(n, w)
      end
    end
    return living
  end

  -- The dead right behind a living waiter leave, a limited number at a time: they would all be passed by one grant.
  function lib.remove_dead_behind(n, w)
    local place = w.place + 1
    for _ = 1, n.gaps and MOST_DEAD or 0 do
      local other = place < n.tail and lib.waiter_at(n, place)
      if other and other.dead_from > nowMs or place >= n.tail then return end
      place = other and lib.give_up(n, other) or lib.gap_end(n, place) + 1
    end
  end

  -- A line of nobody but the dead agrees on no capacity.
  function lib.forget_dead_line(n)
    if n.capacity and n.kind ~= 'exclusive' and n.kind ~= 'several' and not lib.head(n) then n.capacity = nil end
  end

  -- Whose turn has come is granted, and told through the channel of its process.
  function lib.settle(n)
    while n.kind == 'free' or (n.kind == 'several' and n.closed <= nowMs) do
      local w = lib.head(n)
      if not w or n.held + w.weight > n.capacity then return end
      -- First, because it is never refused, and then a server whose memory is full refuses nothing else.
      lib.leave_line(n, w)
      local token, unusable = draw_token(n.lock)
      if not token then
        lib.stay_in_line(n, w)
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

  -- The end of every step: the new first in line learns when to look, if that is earlier than it knows.
  function lib.finish(n)
    if n.is_stale then call('DEL', n.lock) end
    if n.is_unusable then return end
    local w = lib.head(n)
    if not w then
      if n.had_line or n.moved then call('HDEL', n.state, 'f', 't', 'l') end
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
    local is_head = w.place == n.first
    local due = lib.due(n)
    local foreign = n.kind == 'foreign'
    w.looks_at = nowMs + (foreign and is_head and POLL_MS or math.max(due, 0))
    lib.store(n, w, ...)
    return 'w|' .. (is_head and 1 or 0) .. '|' .. floor(due) .. '|' .. (foreign and 1 or 0)
  end
`
