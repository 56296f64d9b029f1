/** State that backend and sessions share, and what of a name they read in the same way. */
import { type Clock, keepProcessAlive } from '../../../base/clock.ts'
import { BackendUnavailableError, type CallOutcome } from '../../../base/errors.ts'
import type { Random } from '../../../base/ids.ts'
import { ignore } from '../../../base/ignore.ts'
import { RecentSet } from '../../../base/recent-set.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import { Lane } from '../../../kit/lane.ts'
import { Lifetime } from '../../../kit/lifetime.ts'
import type { NameFacts, QueuedClaim } from '../../../kit/stored-name.ts'
import type { Call } from '../../../spi.ts'
import type { Refusal, Session, ZooKeeperClient } from '../client/index.ts'
import { Keys } from './keys.ts'
import { parse, type StoredCapacity } from './records.ts'

export const BACKEND = 'zookeeper'

const MAX_CONTAINERS = 10_000

/** The children of a name, and the leader's time. */
export interface ReadName {
  readonly name: string
  readonly children: readonly string[]
  /** Of the container's data. Every join and every resize raises it. */
  readonly version: number
  readonly leaderTime: LeaderTime
}

/** Reads on this session are newer than its last committed write, which gave the leader's time. */
export interface Reading {
  readonly session: Session
  readonly leaderTime: LeaderTime
}

export class Connection {
  readonly client: ZooKeeperClient
  readonly clock: Clock
  readonly random: Random
  readonly keys: Keys
  readonly lifetime: Lifetime
  /** Names whose container is believed to be there. */
  readonly #containers = new RecentSet<string>(MAX_CONTAINERS)
  readonly #readings: Lane<null, Reading>

  constructor(client: ZooKeeperClient, namespace: string, clock: Clock, random: Random) {
    this.client = client
    this.clock = clock
    this.random = random
    this.keys = new Keys(client.chroot, namespace)
    this.lifetime = new Lifetime(BACKEND, clock)
    this.#readings = new Lane({
      backend: BACKEND,
      clock,
      maxBatch: Number.POSITIVE_INFINITY,
      send: async (items, call) => {
        const reading = await this.#commit(call)
        return items.map(() => reading)
      },
    })
  }

  /**
   * A read begins with a write: a member that is cut off from the others goes on answering reads and syncs, but no commit (T91, deposed
   * leaders). Reads of one moment share it.
   */
  reading(call: Call): Promise<Reading> {
    this.lifetime.begin(call)
    return this.#readings.ask(null, call)
  }

  hasContainer(name: string): boolean {
    return this.#containers.has(name)
  }

  /** A wrong guess costs one request: ZooKeeper deletes containers by itself, and other processes create them. */
  setContainer(name: string, isThere: boolean): void {
    if (isThere) this.#containers.add(name)
    else this.#containers.delete(name)
  }

  /** How long the name is closed, and its changed capacity. Nodes that are void are deleted. */
  async readOthers(
    session: Session,
    read: ReadName,
    claims: readonly QueuedClaim[],
    call: Call,
  ): Promise<Partial<NameFacts<never>>> {
    const [closedBy, capacity] = await Promise.all([
      this.#closedBy(session, read, call),
      read.children.includes('capacity') ? this.#capacity(session, read, claims, call) : undefined,
    ])
    return {
      ...(closedBy.length > 0 && { closedBy, closedForMs: Math.max(...closedBy.map(({ ms }) => ms)) }),
      ...capacity,
    }
  }

  async #closedBy(session: Session, { name, children, leaderTime }: ReadName, call: Call) {
    const kept = this.keys.keptIn(name, children).map(async ({ key, order, keepForMs }) => {
      const reply = await session.ask({ op: 'exists', path: key }, call)
      if (!reply.ok) return []
      const ms = reply.stat.ctimeMs + keepForMs - leaderTime.nowMs
      if (ms > 0) return [{ key, order, ms }]
      this.clean(session, key)
      return []
    })
    return (await Promise.all(kept)).flat()
  }

  /** Void when no claim is left for which it counts. It is deleted if no other claim has come, and nobody has resized since. */
  async #capacity(session: Session, { name, version }: ReadName, claims: readonly QueuedClaim[], call: Call) {
    const path = this.keys.of(name, 'capacity')
    const reply = await session.ask({ op: 'getData', path }, call)
    if (!reply.ok) return {}
    const { capacity, before } = parse<StoredCapacity>(reply.data)
    const order = BigInt(before)
    if (!claims.some((claim) => claim.order < order)) {
      const isSame = { op: 'check', path: this.keys.name(name), version } as const
      session.ask({ op: 'multi', parts: [isSame, { op: 'delete', path }] }, neverCancelled).catch(ignore)
      return {}
    }
    const versions = new Map([['capacity', BigInt(reply.stat.version)]])
    return { capacities: [{ order, capacity }], versions }
  }

  /** Deletes a node that is void. If this fails, whoever finds it next does it again. */
  clean(session: Session, path: string): void {
    session.ask({ op: 'delete', path }, neverCancelled).catch(ignore)
  }

  cleanIn(delayMs: number, path: string): void {
    const work = async (call: Call) => this.clean(await this.client.shared(call), path)
    this.clock.setTimer(delayMs, () => {
      if (!this.lifetime.isOver) this.lifetime.inBackground(work).catch(ignore)
    })
  }

  async close(): Promise<void> {
    if (this.lifetime.isOver) return
    this.lifetime.end()
    this.#readings.close()
    // The connections do not keep the process alive, and the caller waits.
    const alive = keepProcessAlive(this.clock)
    await this.client.close().finally(() => alive.cancel())
  }

  async #commit(call: Call): Promise<Reading> {
    const session = await this.client.shared(call)
    const written = await session.ask({ op: 'setData', path: this.keys.root, data: '' }, call)
    if (!written.ok) throw refused(written.code)
    const leaderTime = new LeaderTime(this.clock)
    leaderTime.saw(written.stat.mtimeMs)
    return { session, leaderTime }
  }
}

/** The wall clock of ZooKeeper's leader, from the times of nodes. It is never ahead of it, because the answers took time to arrive. */
export class LeaderTime {
  readonly #clock: Clock
  #aheadMs = Number.NEGATIVE_INFINITY

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Of a node that has just been written. */
  saw(timeMs: number): void {
    this.#aheadMs = timeMs - this.#clock.monotonicMs()
  }

  get nowMs(): number {
    return this.#clock.monotonicMs() + this.#aheadMs
  }
}

export function unavailable(what: string, outcome: CallOutcome): BackendUnavailableError {
  return new BackendUnavailableError(BACKEND, what, outcome)
}

export function refused(code: Refusal): BackendUnavailableError {
  return unavailable(`a request was refused (${code})`, 'not-applied')
}

/** A reply that lacks what every such reply has. */
export function malformed(): BackendUnavailableError {
  return unavailable('a reply does not fit its request', 'unknown')
}
