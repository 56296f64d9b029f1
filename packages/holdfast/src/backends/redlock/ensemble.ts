/** The nodes together: how many of them it takes, and what is said when they are not to be had. */

import { type Clock, type Instant, instantOf } from '../../base/clock.ts'
import {
  BackendUnavailableError,
  type CallOutcome,
  type HoldfastError,
  isHoldfastError,
  UnsupportedError,
} from '../../base/errors.ts'
import { hasListeners, type WarningCode, warn } from '../../base/events.ts'
import type { Random } from '../../base/ids.ts'
import { textOf } from '../../clients/redis/index.ts'
import { Lifetime } from '../../kit/lifetime.ts'
import type { Call } from '../../spi.ts'
import type { Layout } from './layout.ts'
import type { RedlockNode } from './node.ts'
import { Poll, reasonOf } from './poll.ts'

export interface EnsembleOptions {
  readonly nodes: readonly RedlockNode[]
  readonly quorum: number
  readonly layout: Layout
  readonly clock: Clock
  readonly random: Random
  readonly nodeTimeoutMs: number
  readonly quarantineMs: number
  readonly maxTtlMs: number
  readonly namespace: string
}

export class Ensemble {
  readonly nodes: readonly RedlockNode[]
  readonly quorum: number
  readonly layout: Layout
  readonly clock: Clock
  readonly random: Random
  readonly nodeTimeoutMs: number
  readonly quarantineMs: number
  readonly maxTtlMs: number
  readonly namespace: string
  readonly #warned = new Set<string>()
  readonly #background = new Set<Promise<void>>()
  readonly #lifetime: Lifetime

  constructor(options: EnsembleOptions) {
    this.nodes = options.nodes
    this.quorum = options.quorum
    this.layout = options.layout
    this.clock = options.clock
    this.#lifetime = new Lifetime('redlock', options.clock)
    this.random = options.random
    this.nodeTimeoutMs = options.nodeTimeoutMs
    this.quarantineMs = options.quarantineMs
    this.maxTtlMs = options.maxTtlMs
    this.namespace = options.namespace
    for (const node of this.nodes)
      node.observe({
        onOpen: () => this.#hurryTheOthers(),
        onConcern: (concern) => this.#warn(node, concern.code, textOf(concern)),
      })
  }

  /** So many nodes that say no leave no quorum for a yes. */
  get blocking(): number {
    return this.nodes.length - this.quorum + 1
  }

  /** The first line of every call; when the request is sent, its time starts. */
  begin(call: Call): Instant {
    this.#lifetime.begin(call)
    return instantOf(this.clock)
  }

  poll<V>(ask: (node: RedlockNode) => Promise<V>): Poll<V> {
    return new Poll(this.nodes, ask, (node, error) => this.#hear(node, error))
  }

  /** Rejects if a majority cannot be connected to, with what is the matter with each of the others. */
  async reach(call: Call): Promise<void> {
    this.begin(call)
    const poll = this.poll((node) => node.reach())
    await poll.until(() => poll.answered.length >= this.quorum, call)
    const reached = poll.answered.length
    if (reached < this.quorum) throw this.unavailable('connecting: done', reached, poll, 'not-applied')
  }

  /** "2 of 5 nodes, and 3 are needed": what was reached, and what became of the others. */
  unavailable(
    what: string,
    reached: number,
    poll: Poll<unknown>,
    outcome: CallOutcome,
    { note = '' }: { readonly note?: string } = {},
  ): HoldfastError {
    const failures = poll.describeFailures()
    const hint = poll.failed.some(({ node }) => node.isSlow)
      ? `. If they are well and only take longer to answer, raise nodeTimeoutMs, which is ${this.nodeTimeoutMs}`
      : ''
    const message =
      `${what} on ${reached} of ${this.nodes.length} nodes, and ${this.quorum} are needed` +
      (failures === '' ? '' : ` (${failures})`) +
      (note === '' ? '' : `. ${note}`) +
      hint
    // So many that are closed, or let nobody in, leave no quorum until somebody sees to them: that is not waited for.
    const isFinal =
      poll.failed.filter(({ error }) => isHoldfastError(error, 'UNSUPPORTED')).length >= this.blocking
    return isFinal && outcome === 'not-applied'
      ? new UnsupportedError(`redlock: ${message}. It has not taken effect.`)
      : new BackendUnavailableError('redlock', message, outcome)
  }

  /** Work that nobody waits for; it never rejects. */
  inBackground(work: () => Promise<void>): void {
    // Whatever it leaves undone ends by its TTL.
    const running = work().catch(() => {})
    this.#background.add(running)
    running.then(() => this.#background.delete(running))
  }

  /** Nothing is asked from here on; what is being cleaned up is awaited. */
  async close(): Promise<void> {
    if (this.#lifetime.isOver) return
    this.#lifetime.end()
    await this.settled()
    for (const node of this.nodes) node.close()
  }

  async settled(): Promise<void> {
    while (this.#background.size > 0) await Promise.all(this.#background)
  }

  #hurryTheOthers(): void {
    if (this.nodes.filter(({ isConnected }) => isConnected).length < this.quorum) return
    for (const node of this.nodes) node.hurry()
  }

  /** Silence may pass. Whoever cannot be reached, or refuses, has no vote until somebody sees to it: so that is told. */
  #hear(node: RedlockNode, error: unknown): void {
    if (this.#lifetime.isOver || node.isSilent) return
    const isRefused =
      isHoldfastError(error, 'UNSUPPORTED') ||
      (isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'not-applied')
    if (isRefused)
      this.#warn(node, 'HOLDFAST_REDLOCK_NO_VOTE', `it has no vote now: ${reasonOf(node, error)}`)
  }

  /** Once for each node and reason. */
  #warn(node: RedlockNode, code: WarningCode, text: string): void {
    const warning = `${node.label}: ${text}`
    if (this.#warned.has(warning)) return
    // A listener that comes later is told as well.
    if (hasListeners('warning')) this.#warned.add(warning)
    warn({ backend: 'redlock', namespace: this.namespace, code, warning })
  }
}

/** One server that is asked under two addresses would vote twice. */
export function assertDistinct(
  answers: readonly { readonly node: RedlockNode; readonly runId: string }[],
): void {
  const seen = new Map<string, RedlockNode>()
  for (const { node, runId } of answers) {
    const twin = runId === '' ? undefined : seen.get(runId)
    if (twin !== undefined) {
      const [first, second] = [twin.label, node.label].sort()
      throw new UnsupportedError(
        `redlock: ${first} and ${second} are one and the same server (run id ${runId.slice(0, 8)}…), which would vote ` +
          'twice. Give every node a server of its own.',
      )
    }
    seen.set(runId, node)
  }
}
