import { OpCode } from './op-codes.ts'
import { SLOT_IS_MOVING } from './prelude.ts'

/** Lua: what a request asks for, each as one step. Part of `library.ts`. */
export const steps = `
  -- Grants what can be granted now, and stores what has changed. Answers with what became of the attempt.
  function lib.outcome(n, who, w)
    lib.settle(n)
    lib.finish(n)
    local grant, left = lib.holding(n, who)
    if grant then return lib.granted(n, grant, left) end
    return w and not w.has_left and lib.tell(n, w)
  end

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
      return lib.outcome(n, who, channel and w) or 'b'
    end
    lib.forget_dead_queue(n)
    if n.capacity and n.capacity ~= capacity then return 'm' .. n.capacity end
    lib.settle(n)
    local head = lib.head(n)
    local answer
    if not head and lib.is_open(n) and n.held + weight <= capacity then
      local token, refused = draw_token(lock, nowUs)
      if token then
        n.capacity = capacity
        answer = lib.granted(n, lib.grant(n, token, who, body, weight, mode, ttl_ms), -1)
      else
        answer = refused
      end
    elseif not channel then
      answer = n.kind == 'closed' and 'b' .. lib.left(n) or 'b'
    elseif most_waiters and lib.is_full(n, most_waiters) then
      answer = 'f'
    else
      return lib.join(n, { who = who, dead_from = nowMs + ttl_ms, channel = channel, since = nowMs, weight = weight,
        mode = mode, body = body }, capacity)
    end
    lib.finish(n)
    return answer
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

  function lib.abandon(lock, who, _, mark_ms)
    lib.write_also_when_full(lock)
    call('SET', lock .. ':x:' .. who, 'abandoned', 'PX', mark_ms)
    local n = lib.open(lock)
    local w = not lib.let_go(n, who, 0) and lib.waiter(n, who)
    if w then lib.give_up(n, w) end
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

  -- If the waiter has been granted meanwhile, what it holds is prolonged as well.
  function lib.heartbeat(lock, who, _, ttl_ms)
    lib.write_also_when_full(lock)
    local n = lib.open(lock)
    local w = lib.waiter(n, who)
    if w then
      w.dead_from = nowMs + ttl_ms
      lib.store(n, w)
      lib.keep(n, ttl_ms)
      lib.remove_dead_behind(n, w)
    end
    local answer = lib.outcome(n, who, w)
    if not lib.prolong(n, who, ttl_ms) then return answer or lib.why_lost(n, who) end
    return lib.granted(n, answer[2], -1)
  end

  -- Prolongs nothing.
  function lib.look(lock, who)
    local n = lib.open(lock)
    return lib.outcome(n, who, lib.waiter(n, who)) or lib.why_lost(n, who)
  end

  -- The same words as isDenial in client/failures.ts.
  function lib.is_denial(message)
    return match(message, 'NOPERM') or match(message, 'ACL failure in script') or match(message, 'executing the script can')
  end

  -- While a slot of a Cluster is being moved, its keys are on two nodes, and a script sees those of one. The server refuses a
  -- command about several keys then, unless it has all of them. Each version of it has its own words for that.
  local function are_apart(...)
    if not is_cluster then return false end
    local found = redis.pcall('EXISTS', ...)
    return type(found) == 'table' and not lib.is_denial(found.err)
  end

  -- The second key never exists, so a slot that is being moved always refuses this.
  function lib.is_moving(lock)
    return are_apart(lock, lock .. ':x:')
  end

  local steps = {
    ['${OpCode.enqueue}'] = lib.acquire,
    ['${OpCode.tryAcquire}'] = lib.acquire,
    ['${OpCode.release}'] = lib.release,
    ['${OpCode.renew}'] = lib.renew,
    ['${OpCode.abandon}'] = lib.abandon,
    ['${OpCode.heartbeat}'] = lib.heartbeat,
    ['${OpCode.look}'] = lib.look,
  }

  -- An error, say of a key that has another type, is the answer to this request, and to no other.
  function lib.step(operation, lock, who, ...)
    -- A renewal needs only existing keys. Every other step may need a key that is missing, or already on the other node. But an
    -- exclusive lock can be released: waiters that are on the other side find the name free when they look.
    if operation == '${OpCode.renew}' then
      if are_apart(lock, lock .. ':s', lock .. ':h') then return { 'e', '${SLOT_IS_MOVING}' } end
    elseif lib.is_moving(lock) then
      local grant, keep_ms = ...
      if operation ~= '${OpCode.release}' or keep_ms > 0 or not is_held(lock, who, grant) then
        return { 'e', '${SLOT_IS_MOVING}' }
      end
      call('DEL', lock)
      return 'r'
    end
    local is_done, answer = pcall(steps[operation], lock, who, ...)
    if is_done then return answer end
    return refusal(lock, type(answer) == 'table' and answer.err or tostring(answer))
  end
`
