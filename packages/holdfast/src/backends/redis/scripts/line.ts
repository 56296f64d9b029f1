/** Lua: those who wait for a name, and whose turn it is. Part of `library.ts`. */
export const line = `
  -- The first in line who is alive; the dead before it leave. Each place is passed once, so this costs O(1) a waiter.
  function lib.head(n)
    while n.first < n.tail do
      local who = call('HGET', n.state, 'q' .. n.first)
      if who then
        local dead_from, looks_at = match(call('HGET', n.state, 'e:' .. who) or '', '^(%d+)|(%d+)')
        if dead_from and tonumber(dead_from) > nowMs then return who, tonumber(dead_from), tonumber(looks_at) end
        call('HDEL', n.state, 'q' .. n.first, 'w:' .. who, 'e:' .. who)
      end
      n.first = n.first + 1
      n.moved = true
    end
  end

  -- A line of nobody but the dead agrees on no capacity.
  function lib.forget_dead_line(n)
    if n.capacity and n.kind ~= 'exclusive' and n.kind ~= 'several' and not lib.head(n) then n.capacity = nil end
  end

  function lib.leave_line(n, who)
    local waiter = call('HGET', n.state, 'w:' .. who)
    if not waiter then return false end
    call('HDEL', n.state, 'q' .. match(waiter, '^(%d+)|'), 'w:' .. who, 'e:' .. who)
    return true
  end

  -- Whose turn has come is granted, and told through the channel of its process.
  function lib.settle(n)
    while n.kind == 'free' or (n.kind == 'several' and n.closed <= nowMs) do
      local who, dead_from = lib.head(n)
      if not who then return end
      local channel, weight, mode, body =
        match(call('HGET', n.state, 'w:' .. who), '^%d+|([^|]*)|%d+|(%d+)|([^|]*)|(.*)$')
      weight = tonumber(weight)
      if n.held + weight > n.capacity then return end
      call('HDEL', n.state, 'q' .. n.first, 'w:' .. who, 'e:' .. who)
      n.first = n.first + 1
      n.moved = true
      local token = lib.grant(n, who, body, weight, mode, dead_from - nowMs)
      call('PUBLISH', channel, 'g|' .. sub(who, 1, 22) .. '|' .. token .. '|' .. (n.data and '1' .. n.data or '0'))
    end
  end

  -- How long until something can happen by itself.
  function lib.due(n)
    if n.kind == 'several' then
      if n.closed > nowMs then return n.closed - nowMs end
      local soonest = call('ZRANGE', n.holders, 0, 0, 'WITHSCORES')
      return soonest[2] and math.max(0, tonumber(soonest[2]) - nowMs) or 0
    end
    return n.left or 0
  end

  -- The end of every step: the new first in line learns when to look, if that is earlier than it knows.
  function lib.finish(n)
    local who, dead_from, looks_at = lib.head(n)
    if not who then
      if n.had_line or n.moved then call('HDEL', n.state, 'f', 't') end
      n.first, n.tail = 0, 0
      if n.kind ~= 'several' then
        if n.data then call('HDEL', n.state, 'cap') else call('DEL', n.state) end
      end
      return
    end
    if n.moved then call('HSET', n.state, 'f', n.first) end
    local due = lib.due(n)
    local foreign = n.kind == 'foreign'
    if foreign then due = POLL_MS end
    if nowMs + due + HINT_MARGIN_MS < looks_at then
      local channel = match(call('HGET', n.state, 'w:' .. who), '^%d+|([^|]*)|')
      call('HSET', n.state, 'e:' .. who, dead_from .. '|' .. (nowMs + due))
      call('PUBLISH', channel, 'h|' .. sub(who, 1, 22) .. '|' .. floor(due) .. '|' .. (foreign and 1 or 0))
    end
  end

  -- What a waiter is told: whether it is the first, when something can happen, and whether a foreign client holds.
  function lib.tell(n, is_head)
    local due = lib.due(n)
    local foreign = n.kind == 'foreign'
    local looks_at = nowMs + (foreign and is_head and POLL_MS or math.max(due, 0))
    return 'w|' .. (is_head and 1 or 0) .. '|' .. floor(due) .. '|' .. (foreign and 1 or 0), looks_at
  end

  function lib.waiting(n, who)
    local told, looks_at = lib.tell(n, call('HGET', n.state, 'q' .. n.first) == who)
    local dead_from = match(call('HGET', n.state, 'e:' .. who), '^(%d+)|')
    call('HSET', n.state, 'e:' .. who, dead_from .. '|' .. looks_at)
    return told
  end
`
