/** One rule that a backend on a cluster keeps when members and the network fail, as data. */
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { Cancellation } from '../../base/cancellation.ts'
import { isHoldfastError } from '../../base/errors.ts'
import type { FencedLease, Locker } from '../../base/types.ts'
import { createLocker } from '../../locker/locker.ts'
import type { AcquireResult, Backend, BackendSession, EnqueueResult, Grant, NameState } from '../../spi.ts'
import { isNotApplied } from '../conformance/actor.ts'
import { call } from '../conformance/requests.ts'
import { newSessionId } from '../conformance/stage.ts'

/** A TCP proxy before one member. Each fault lasts until the world is healed; connections that have lost something end then. */
export interface ClusterDoor {
  /** Resets the connections that there are now. */
  cut(): void
  /** Swallows everything in both directions, and tells neither side. */
  blackhole(): void
  /** Swallows what the member answers. Requests still reach it. */
  dropAnswers(): void
  /** Keeps everything, and delivers it when the fault ends. */
  hold(): void
  heal(): void
}

export interface ClusterMember {
  readonly door: ClusterDoor
  /** It stands still, and its connections stay open (SIGSTOP). */
  pause(): Promise<void>
  resume(): Promise<void>
  /** It ends at once, as in a power cut. Its data stays. */
  kill(): Promise<void>
  /** On the same data and addresses. It resolves when the member serves. */
  restart(): Promise<void>
  /** Nothing passes between it and the other members; clients still reach it. Without it, the suite `lacks: ['partitions']`. */
  cutOff?(): Promise<void>
}

/** A cluster of at least three members, and one namespace on it, in which nothing is when the case begins. */
export interface ClusterWorld {
  readonly members: readonly ClusterMember[]
  /** The TTL of leases that must outlive an election: about four times as long as one takes. */
  readonly ttlMs: number
  /** Once there is one. */
  leader(): Promise<ClusterMember>
  /** A client that knows these members only, and tries them in this order: at their own addresses, or through their doors. */
  client(members: readonly ClusterMember[], way: 'direct' | 'doors'): Promise<Backend<'fenced'>>
  /** Ends all faults. Resolves when every member runs and follows a leader. */
  heal(): Promise<void>
  /** Keys of claims and sessions that the engine has, in its own words. */
  remains(): Promise<readonly string[]>
  /** Heals, closes the clients and ends the sessions that they have left. */
  close(): Promise<void>
}

/** `asking-again`: what may be applied twice is asked again after a silence (T98, dropped proposals). `watch`: the backend tells events itself. */
export type ClusterAbility = 'partitions' | 'asking-again' | 'watch'

export interface ClusterCase {
  /** Stable: `M17`. Never given to another case. */
  readonly rule: string
  /** A sentence, with the numbers of the guarantees and traps that it shows. */
  readonly title: string
  readonly topic: string
  readonly needs: readonly ClusterAbility[]
  /** Rejects if the rule is broken. */
  run(world: ClusterWorld): Promise<void>
}

export interface ClusterCaseBody {
  readonly rule: string
  readonly title: string
  readonly needs?: readonly ClusterAbility[]
  readonly play: (stage: ClusterStage) => Promise<void>
}

export function clusterTopic(topic: string, bodies: readonly ClusterCaseBody[]): readonly ClusterCase[] {
  return bodies.map(({ rule, title, needs = [], play }) => ({
    rule,
    title,
    topic,
    needs,
    async run(world) {
      const stage = new ClusterStage(world)
      try {
        await play(stage)
      } finally {
        stage.stop()
      }
    },
  }))
}

type Session = BackendSession<'fenced'>

/** Longer than anything takes on a busy machine. Nothing waits so long when all is well. */
const PATIENCE_MS = 60_000

/** A cluster, and the steps of the cases on it. */
export class ClusterStage {
  readonly world: ClusterWorld
  readonly #timers = new Set<NodeJS.Timeout>()
  #observer: Promise<Backend<'fenced'>> | undefined

  constructor(world: ClusterWorld) {
    this.world = world
  }

  get members(): readonly ClusterMember[] {
    return this.world.members
  }

  get first(): ClusterMember {
    const [first] = this.members
    assert(first !== undefined, 'the cluster has members')
    return first
  }

  /** Those besides the leader, at least two. */
  async followers(): Promise<{ leader: ClusterMember; one: ClusterMember; two: ClusterMember }> {
    const leader = await this.world.leader()
    const [one, two] = this.others(leader)
    assert(one !== undefined && two !== undefined, 'the cluster has three members')
    return { leader, one, two }
  }

  others(than: ClusterMember): ClusterMember[] {
    return this.members.filter((member) => member !== than)
  }

  async cutOff(member: ClusterMember): Promise<void> {
    assert(member.cutOff, "members have no cutOff: provide it, or declare lacks: ['partitions']")
    await member.cutOff()
  }

  /** A client of all members that begins at this one. */
  beginningAt(first: ClusterMember): Promise<Backend<'fenced'>> {
    return this.world.client([first, ...this.others(first)], 'direct')
  }

  throughDoors(): Promise<Backend<'fenced'>> {
    return this.world.client(this.members, 'doors')
  }

  /** A client that holds nothing, for looking. */
  observer(): Promise<Backend<'fenced'>> {
    this.#observer ??= this.world.client(this.members, 'direct')
    return this.#observer
  }

  /** By default it outlives the case. */
  session(backend: Backend<'fenced'>, ttlMs = 30_000): Promise<Session> {
    const request = { id: newSessionId(), ttlMs: within(backend, ttlMs), holder: 'tester' }
    return backend.openSession(request, call())
  }

  locker(backend: Backend<'fenced'>, ttlMs = this.world.ttlMs): Locker<'fenced'> {
    return createLocker(backend, { ttlMs: within(backend, ttlMs), waitMs: PATIENCE_MS })
  }

  /** A call that is given up after so long. */
  givenUpAfter(ms: number): Cancellation {
    const cancellation = new Cancellation()
    this.#timers.add(setTimeout(() => cancellation.cancel(new Error(`given up after ${ms} ms`)), ms))
    return cancellation
  }

  stop(): void {
    for (const timer of this.#timers) clearTimeout(timer)
  }

  /** Asks again and again; an error counts as "not yet", and so do `false` and `null`. */
  async until<T>(what: string, probe: () => Promise<T | false | null> | T | false | null): Promise<T> {
    let cause: unknown
    for (const startMs = performance.now(); performance.now() - startMs < PATIENCE_MS; await sleep(20)) {
      try {
        const answer = await probe()
        if (answer !== false && answer !== null) return answer
      } catch (error) {
        cause = error
      }
    }
    throw new Error(`waited in vain until ${what}`, { cause })
  }

  /** Made again until the connection that the fault has spoilt is left. */
  async answered<T>(ask: () => Promise<T>): Promise<T> {
    return (await this.until('a call is answered', async () => ({ answer: await ask() }))).answer
  }

  async inspect(name: string): Promise<NameState | null> {
    return (await this.observer()).inspect(name, call())
  }

  async waits(name: string): Promise<void> {
    await this.until(`one waits for ${name}`, async () => (await this.inspect(name))?.waiters.length === 1)
  }

  /** Resolves when the lease has been prolonged from now on. */
  async renewed(lease: FencedLease): Promise<void> {
    let leastMs = lease.remainingMs
    const isRenewed = await this.until('the lease is renewed, or lost', () => {
      const { state, remainingMs } = lease
      if (state === 'lost') return 'lost'
      if (remainingMs > leastMs) return 'renewed'
      leastMs = remainingMs
      return null
    })
    assert.equal(isRenewed, 'renewed')
  }
}

/** As the engine can grant it. */
function within({ info }: Backend, ttlMs: number): number {
  return Math.max(info.ttlMs.min, Math.min(info.ttlMs.max, ttlMs))
}

export function granted(
  result: AcquireResult<'fenced'> | EnqueueResult<'fenced'> | undefined,
): Grant<'fenced'> {
  assert(result?.kind === 'granted', `granted, not ${result?.kind}`)
  return result.grant
}

/** A request for an attempt that was abandoned may be refused in two ways. */
export async function refused(asked: Promise<AcquireResult>): Promise<void> {
  try {
    assert.equal((await asked).kind, 'busy')
  } catch (error) {
    if (!isNotApplied(error)) throw error
  }
}

/** Resolves if the call fails, and does not say what became of it. */
export function unknown(asked: Promise<unknown>): Promise<void> {
  return assert.rejects(
    asked,
    (error) => isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'unknown',
  )
}

export function unavailable(asked: Promise<unknown>): Promise<void> {
  return assert.rejects(asked, (error) => isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
}
