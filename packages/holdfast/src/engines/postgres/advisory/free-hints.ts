/**
 * Waiters of a session, and how they learn that a name may be free. Nobody queues at the server (ADR 0016), so this is a hint to try
 * again, and core polls all the same. A session that waits for a key shares a lock with all others that do. Whoever
 * frees the key finds by that lock whether there are others, and notifies them (ADR 0033).
 *
 *   unknown ──the first waiter──▶ asked ──the lock is shared──▶ known        one waiter tries again: the key may be free by now
 *   asked ──a releaser looks at the lock at this moment──▶ unknown           the same
 *   asked ──the server refuses──▶ refused ──a keep-alive──▶ unknown          its lock table may be full: waiters poll meanwhile
 *   known, unknown ──no waiter between two keep-alives──▶ (forgotten)        a lock that is shared is given back
 *
 * Between the steps of a hand-over (unlock · look for waiters · notify · commit · message · try):
 *   A waiter that shares the lock before the look is told. One that comes later tries after that, and finds the key free.
 *   The releaser dies, the message is lost, the process that is told is paused or dies: the others find out at their next poll.
 *   The waiter that is told is cancelled before its next try: the others of its process, and of other processes, find out the same way.
 *   A connection ends instead of freeing its locks: nobody is told, and all find out at their next poll.
 */
import type { Clock } from '../../../base/clock.ts'

/** More keys than these are not waited for with a hint: each takes an entry in the server's lock table. */
const MOST_KEYS = 256
/** Other processes may try first: otherwise one with many waiters could keep a name for itself. */
const HEAD_START_MS = 5

interface Awaited {
  readonly waiters: Set<() => void>
  state: 'unknown' | 'asked' | 'known' | 'refused'
  /** A hint came while no waiter was there to be told: it is between two tries. */
  isMissed: boolean
  hasWaited: boolean
}

export interface FreeHintsOptions {
  readonly clock: Clock
  /** Shares the lock of the key's waiters. False: not now. */
  readonly share: (key: string) => Promise<boolean>
  readonly unshare: (keys: readonly string[]) => Promise<unknown>
}

export class FreeHints {
  readonly #options: FreeHintsOptions
  readonly #awaited = new Map<string, Awaited>()

  constructor(options: FreeHintsOptions) {
    this.#options = options
  }

  once(key: string, tell: () => void): () => void {
    const awaited = this.#of(key)
    if (awaited === undefined) return () => {}
    awaited.waiters.add(tell)
    awaited.hasWaited = true
    if (awaited.state === 'unknown') this.#ask(key, awaited)
    else if (awaited.isMissed) this.tell(key)
    return () => void awaited.waiters.delete(tell)
  }

  /** The key was freed, here or by another process. One waiter is told. */
  tell(key: string): void {
    const awaited = this.#awaited.get(key)
    if (awaited === undefined) return
    const [first] = awaited.waiters
    awaited.isMissed = first === undefined
    if (first === undefined) return
    awaited.waiters.delete(first)
    first()
  }

  /** A claim of this session was freed, and the server has notified others or found none. */
  freed(key: string, othersWait: boolean): void {
    if (!this.#awaited.has(key)) return
    if (othersWait) this.#options.clock.setTimer(HEAD_START_MS, () => this.tell(key))
    else this.tell(key)
  }

  /** At every keep-alive. */
  async tidy(): Promise<void> {
    const shared: string[] = []
    for (const [key, awaited] of this.#awaited) {
      const { waiters, hasWaited, state } = awaited
      if (state === 'refused') awaited.state = 'unknown'
      awaited.hasWaited = false
      if (waiters.size > 0 || hasWaited || state === 'asked') continue
      this.#awaited.delete(key)
      if (state === 'known') shared.push(key)
    }
    if (shared.length > 0) await this.#options.unshare(shared)
  }

  #of(key: string): Awaited | undefined {
    const known = this.#awaited.get(key)
    if (known !== undefined || this.#awaited.size >= MOST_KEYS) return known
    const awaited: Awaited = { waiters: new Set(), state: 'unknown', isMissed: false, hasWaited: true }
    this.#awaited.set(key, awaited)
    return awaited
  }

  #ask(key: string, awaited: Awaited): void {
    awaited.state = 'asked'
    const answered = (isShared: boolean) => {
      awaited.state = isShared ? 'known' : 'unknown'
      this.tell(key)
    }
    this.#options.share(key).then(answered, () => {
      // A session that has ended tells its waiters by their next try.
      awaited.state = 'refused'
    })
  }
}
