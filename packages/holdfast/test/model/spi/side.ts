/** One of the two engines that are compared: its clients, and what has been seen of it. */
import assert from 'node:assert/strict'
import { callWith } from '../../../src/base/aborting.ts'
import { isHoldfastError } from '../../../src/base/errors.ts'
import { publicIdOf } from '../../../src/base/ids.ts'
import type { AcquireRequest, Backend, BackendSession, EnqueueResult, NameState } from '../../../src/spi.ts'
import { enqueued } from '../../../src/testing/enqueued.ts'

export type Client = Backend<'fenced'>
export type Session = BackendSession<'fenced'>

/** An answer or an error: either must be the same on both sides. */
export type Outcome<T> = { readonly answer: T } | { readonly error: string }

export async function outcomeOf<T>(call: Promise<T>): Promise<Outcome<T>> {
  try {
    return { answer: await call }
  } catch (error) {
    if (!isHoldfastError(error)) return { error: String(error) }
    return { error: 'outcome' in error ? `${error.code} ${String(error.outcome)}` : error.code }
  }
}

/** A call of `enqueue`, and what has become of it. */
export interface Wait {
  readonly controller: AbortController
  /** Undefined while it waits. */
  outcome: Outcome<EnqueueResult<'fenced'>> | undefined
  compared: 'not-yet' | 'late' | 'done'
}

interface Issued {
  /** The name and its namespace. */
  readonly place: string
  readonly token: bigint
  readonly step: number
}

export class Side {
  readonly title: string
  readonly clients: readonly Client[]
  /** By the number of the session and of the client. */
  readonly sessions = new Map<string, Session>()
  readonly waits: Wait[] = []
  /** Events about each claim, in its order. */
  readonly told = new Map<string, string[]>()
  /** Counts what has been done, to tell what happened together. */
  step = 0
  readonly #tokens = new Map<string, Issued>()

  constructor(title: string, clients: readonly Client[]) {
    this.title = title
    this.clients = clients
  }

  client(number: number): Client {
    const client = this.clients[number % this.clients.length]
    assert(client !== undefined)
    return client
  }

  /** Collects what a watch of the first client tells, until the client ends. */
  startWatching(): void {
    const events = this.client(0).watch?.('', {}, callWith())
    assert(events !== undefined, `${this.title} can watch`)
    const read = async () => {
      for await (const event of events) {
        assert(event.kind !== 'gap', `${this.title}: a gap`)
        const { kind, id, name, holder } = event
        this.told.set(id, [...(this.told.get(id) ?? []), `${kind} ${name} ${holder}`])
      }
    }
    read().catch((error: unknown) => {
      if (!isHoldfastError(error, 'CLOSED')) throw error
    })
  }

  place(client: number, name: string): string {
    return `${this.client(client).info.namespace} ${name}`
  }

  /** Starts a wait; resolves when it is queued or over. */
  async startWait(session: Session, request: AcquireRequest): Promise<void> {
    assert(session.enqueue !== undefined, `${this.title} has a line`)
    const controller = new AbortController()
    const wait: Wait = { controller, outcome: undefined, compared: 'not-yet' }
    this.waits.push(wait)
    const queued = Promise.withResolvers<void>()
    const answer = enqueued(session, request, callWith(controller.signal, { queued: queued.resolve }))
    const over = outcomeOf(answer).then((outcome) => {
      wait.outcome = outcome
    })
    await Promise.race([queued.promise, over])
  }

  /** Tokens are compared by their order: an engine may skip numbers. Who is granted anew has a higher one. */
  token(place: string, id: string, token: bigint | null): string {
    assert(
      typeof token === 'bigint' && token > 0n && token < 2n ** 63n,
      `${this.title}: ${token} is no token`,
    )
    const known = this.#tokens.get(id)
    assert(known === undefined || known.token <= token, `${this.title}: the token of ${id} has fallen`)
    if (known?.token !== token) this.#tokens.set(id, { place, token, step: this.step })
    return `the token of ${id}`
  }

  rawToken(attempt: string): bigint | undefined {
    return this.#tokens.get(publicIdOf(attempt))?.token
  }

  /** The order of all grants. Names that become free in the same step may be granted in any order. */
  get grantOrder(): string[] {
    const byToken = [...this.#tokens].sort(([, a], [, b]) => (a.token < b.token ? -1 : 1))
    byToken.reduce(
      (before, [id, { token, step }]) => {
        assert(before.token < token, `${this.title}: token ${token} was issued twice`)
        assert(before.step <= step, `${this.title}: ${id} got token ${token} later than others a higher one`)
        return { token, step }
      },
      { token: 0n, step: 0 },
    )
    const group = ({ step, place }: Issued) => `${String(step).padStart(6, '0')} ${place}`
    return byToken
      .sort(([, a], [, b]) => (group(a) < group(b) ? -1 : group(a) > group(b) ? 1 : 0))
      .map(([id]) => id)
  }

  /** The comparable part of a name's state: the order of its waiters counts, that of its holders does not. */
  state(client: number, state: NameState | null): unknown {
    if (state === null) return null
    const { holders, waiters, capacity } = state
    const inUse = holders.length + waiters.length > 0
    return {
      ...state,
      // A name that nobody uses has no capacity: the next to ask decides.
      capacity: inUse ? capacity : 'any',
      holders: holders
        .map((holder) => ({
          ...holder,
          token: this.token(this.place(client, state.name), holder.id, holder.token),
        }))
        .sort((a, b) => (a.id < b.id ? -1 : 1)),
    }
  }
}
