/**
 * A backend with a fair line, made to look like an engine that has none: so that the ways in which core waits
 * without one can be tried on any backend.
 *
 * ```ts
 * const locker = createLocker(weakenWaiting(memory({ engine }), 'poll'))
 * ```
 */
import { calledOff } from '../core/backend-kit.ts'
import { UnsupportedError } from '../core/errors.ts'
import type { Backend, BackendSession, Call, Fencing, WatchEvent, WatchEventKind } from '../spi.ts'

export interface WeakenWaitingOptions {
  /** With `notify`: every wait also gets a hint this long after it began, although nothing has become free. */
  readonly spuriousAfterMs?: number
}

export function weakenWaiting<F extends Fencing>(
  backend: Backend<F>,
  waiting: 'notify' | 'poll',
  options: WeakenWaitingOptions = {},
): Backend<F> {
  const { info, watch } = backend
  if (waiting === 'notify' && watch === undefined)
    throw new UnsupportedError(
      `${info.name} cannot be watched, so nobody can be notified; weaken it to 'poll'.`,
    )
  const weaken = (session: BackendSession<F>): BackendSession<F> => {
    const weakened = withoutLine(session)
    if (waiting === 'poll') return weakened
    return { ...weakened, waitForFree: (name, call) => nextHint(backend, name, call, options) }
  }
  return {
    info: { ...info, waiting, driftMs: (ttlMs) => info.driftMs(ttlMs) },
    clock: backend.clock,
    random: backend.random,
    openSession: async (request, call) => weaken(await backend.openSession(request, call)),
    attachSession: async (handle, call) => {
      const session = await backend.attachSession(handle, call)
      return session === null ? null : weaken(session)
    },
    inspect: (name, call) => backend.inspect(name, call),
    list: (prefix, call) => backend.list(prefix, call),
    check: (holder, call) => backend.check(holder, call),
    forceRelease: (name, ids, reason, call) => backend.forceRelease(name, ids, reason, call),
    resize: (name, capacity, call) => backend.resize(name, capacity, call),
    forget: (name, data, call) => backend.forget(name, data, call),
    ...(watch && { watch: watch.bind(backend) }),
    [Symbol.asyncDispose]: () => backend[Symbol.asyncDispose](),
  }
}

function withoutLine<F extends Fencing>(session: BackendSession<F>): BackendSession<F> {
  const { id, ttlMs, since, handle, setData } = session
  return {
    id,
    ttlMs,
    since,
    handle,
    keepAlive: (claims, call) => session.keepAlive(claims, call),
    tryAcquire: (request, call) => session.tryAcquire(request, call),
    abandon: (claim, call) => session.abandon(claim, call),
    ...(setData && { setData: setData.bind(session) }),
    release: (claim, options, call) => session.release(claim, options, call),
    close: (call) => session.close(call),
  }
}

/** What may have made room. After a gap nobody knows, so it counts too. */
const freeing: readonly (WatchEventKind | 'gap')[] = [
  'released',
  'expired',
  'force-released',
  'gave-up',
  'gap',
]

async function nextHint<F extends Fencing>(
  backend: Backend<F>,
  name: string,
  call: Call,
  { spuriousAfterMs }: WeakenWaitingOptions,
): Promise<void> {
  const heard = new AbortController()
  // An async function runs up to its first await at once: from here on nothing is missed (T19).
  const events = backend.watch?.(name, { signal: AbortSignal.any([call.signal, heard.signal]) }) ?? []
  const spurious = Promise.withResolvers<void>()
  const timer =
    spuriousAfterMs === undefined ? undefined : backend.clock.setTimer(spuriousAfterMs, spurious.resolve)
  try {
    await Promise.race([untilFreed(events, name), spurious.promise])
  } finally {
    timer?.cancel()
    heard.abort()
  }
  if (call.signal.aborted) throw calledOff(backend.info.name, call.signal, 'unknown')
}

/** Also returns when there will be no more events. */
async function untilFreed(
  events: AsyncIterable<WatchEvent> | Iterable<WatchEvent>,
  name: string,
): Promise<void> {
  for await (const event of events)
    if (freeing.includes(event.kind) && (event.kind === 'gap' || event.name === name)) return
}
