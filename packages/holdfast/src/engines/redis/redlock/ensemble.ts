/** The nodes together: how many of them it takes, and what is said when they do not answer. */

import { Background } from '../../../base/background.ts'
import { type Clock, type Instant, instantOf } from '../../../base/clock.ts'
import {
  BackendUnavailableError,
  type CallOutcome,
  type HoldfastError,
  isHoldfastError,
  UnsupportedError,
} from '../../../base/errors.ts'
import { hasListeners, type WarningCode, warn } from '../../../base/events.ts'
import type { Random } from '../../../base/ids.ts'
import { Lifetime } from '../../../kit/lifetime.ts'
import type { Call } from '../../../spi.ts'
import { type LockKeys, textOf } from '../client/index.ts'
import type { RedlockNode } from './node.ts'
import { type NodeAnswer, Poll, reasonOf } from './poll.ts'

export interface EnsembleOptions {
  readonly nodes: readonly RedlockNode[]
  readonly quorum: number
  readonly keys: LockKeys
  readonly clock: Clock
  readonly random: Random
  readonly nodeTimeoutMs: number
  readonly maxTtlMs: number
  readonly persistence: 'none' | 'every-write'
  readonly namespace: string
}

export class Ensemble {
  readonly options: EnsembleOptions
  readonly nodes: readonly RedlockNode[]
  readonly quorum: number
  /** The nodes whose no leaves no quorum for a yes. 3 of 5 with a quorum of 3. */
  readonly blocking: number
  readonly keys: LockKeys
  readonly #warned = new Set<string>()
  readonly #background = new Background()
  readonly #lifetime: Lifetime

  constructor(options: EnsembleOptions) {
    this.options = options
    this.nodes = options.nodes
    this.quorum = options.quorum
    this.blocking = options.nodes.length - options.quorum + 1
    this.keys = options.keys
    this.#lifetime = new Lifetime('redlock', options.clock)
    for (const node of this.nodes)
      node.observe({
        onOpen: () => this.#shortenWaits(),
        onConcern: (concern) => this.#warn(node, concern.code, textOf(concern)),
      })
  }

  /** The first line of every call. Belief counts from this time, because the request is sent after it. */
  begin(call: Call): Instant {
    this.#lifetime.begin(call)
    return instantOf(this.options.clock)
  }

  /** Asks all nodes. */
  poll<V>(ask: (node: RedlockNode) => Promise<V>): Poll<V> {
    return this.pollWith((node, answer) => {
      ask(node).then(
        (value) => answer.answered(value),
        (error: unknown) => answer.failed(error),
      )
    })
  }

  /** The same without promises. */
  pollWith<V>(ask: (node: RedlockNode, answer: NodeAnswer<V>) => void): Poll<V> {
    return new Poll(this.nodes, ask, this.#failed)
  }

  /** Rejects if a majority cannot be connected to, with the reason of each of the others. */
  async reach(call: Call): Promise<void> {
    this.begin(call)
    const poll = this.poll(async ({ contact }) => contact.reach())
    await this.answeredByQuorum(poll, 'connecting: done', call, 'not-applied')
  }

  /** Waits until a quorum has answered; rejects without one. */
  async answeredByQuorum(poll: Poll<unknown>, what: string, call: Call, outcome: CallOutcome): Promise<void> {
    const answered = () => poll.count(() => true)
    await poll.until(() => answered() >= this.quorum, call)
    if (answered() < this.quorum) throw this.unavailable(what, answered(), poll, outcome)
  }

  /** "2 of 5 nodes, and 3 are needed": how many did it, and what became of the others. */
  unavailable(
    what: string,
    reached: number,
    poll: Poll<unknown>,
    outcome: CallOutcome,
    note = '',
  ): HoldfastError {
    const { failed } = poll
    const failures = poll.describeFailures()
    const hint = failed.some(({ node }) => node.isSlow)
      ? `. If they are well and only take longer to answer, raise nodeTimeoutMs, which is ${this.options.nodeTimeoutMs}`
      : ''
    const message =
      `${what} on ${reached} of ${this.nodes.length} nodes, and ${this.quorum} are needed` +
      (failures === '' ? '' : ` (${failures})`) +
      (note === '' ? '' : `. ${note}`) +
      hint
    // Nodes that are closed, or do not let this user in, may leave no quorum until an operator acts: that is not waited for.
    const isFinal =
      failed.filter(({ error }) => isHoldfastError(error, 'UNSUPPORTED')).length >= this.blocking
    return isFinal && outcome === 'not-applied'
      ? new UnsupportedError(`redlock: ${message}. It has not taken effect.`)
      : new BackendUnavailableError('redlock', message, outcome)
  }

  inBackground(work: () => Promise<unknown>): void {
    this.#background.run(work)
  }

  /** Nothing is asked from here on; what is being cleaned up is awaited. */
  async close(): Promise<void> {
    if (this.#lifetime.isOver) return
    this.#lifetime.end()
    await this.#background.idle()
    for (const node of this.nodes) node.close()
  }

  #shortenWaits(): void {
    if (this.nodes.filter(({ contact }) => contact.isOpen).length < this.quorum) return
    for (const { contact } of this.nodes) contact.shortenWait()
  }

  /** Silence may pass. A node that cannot be reached, or refuses, has no vote until an operator acts: so there is a warning. */
  readonly #failed = (node: RedlockNode, error: unknown): void => {
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
    warn({ backend: 'redlock', namespace: this.options.namespace, code, warning })
  }
}

/** Pairs of nodes that lead to one server, which would vote twice. */
export function twinsAmong(nodes: readonly RedlockNode[]): readonly (readonly [RedlockNode, RedlockNode])[] {
  const twins: [RedlockNode, RedlockNode][] = []
  for (const first of nodes)
    for (const second of nodes)
      if (first.index < second.index && first.runId && first.runId === second.runId)
        twins.push([first, second])
  return twins
}

export function assertDistinct(nodes: readonly RedlockNode[]): void {
  const [twins] = twinsAmong(nodes)
  if (twins === undefined) return
  const [first, second] = twins
  throw new UnsupportedError(
    `redlock: ${first.label} and ${second.label} are one and the same server (run id ${first.runId?.slice(0, 8)}…), ` +
      'which would vote twice. Give every node a server of its own.',
  )
}
