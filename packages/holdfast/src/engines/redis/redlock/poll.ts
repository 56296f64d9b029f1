/** One question to all nodes at once, and their answers as they come in. */

import { outcomeOf } from '../../../base/errors.ts'
import { cancelledCall } from '../../../kit/backend-kit.ts'
import type { Asker } from '../../../kit/lane.ts'
import type { Call } from '../../../spi.ts'
import type { RedlockNode } from './node.ts'

/** The state of the question at one node. */
export class NodeAnswer<V> implements Asker<V> {
  readonly node: RedlockNode
  readonly #poll: Poll<V>
  state: 'pending' | 'answered' | 'failed' = 'pending'
  value: V | undefined
  error: unknown

  constructor(node: RedlockNode, poll: Poll<V>) {
    this.node = node
    this.#poll = poll
  }

  answered(value: V): void {
    this.state = 'answered'
    this.value = value
    this.#poll.heard()
  }

  failed(error: unknown): void {
    this.state = 'failed'
    this.error = error
    this.#poll.onFailed(this.node, error)
    this.#poll.heard()
  }

  /** The question failed, and the node may have done what it was asked all the same, or may do it yet. */
  get isUncertain(): boolean {
    return this.state === 'failed' && outcomeOf(this.error) === 'unknown'
  }
}

export type Answered<V> = NodeAnswer<V> & { readonly value: V }

export class Poll<V> {
  /** One for each node, in the order of the nodes. */
  readonly answers: readonly NodeAnswer<V>[]
  readonly onFailed: (node: RedlockNode, error: unknown) => void
  #pending: number
  /** Callbacks are dropped when they have been called: a late answer must not keep alive what they refer to. */
  #isDecided: (() => boolean) | undefined
  #resolve: (() => void) | undefined
  #untie: (() => void) | undefined
  #whenAllIn: (() => void) | undefined

  constructor(
    nodes: readonly RedlockNode[],
    ask: (node: RedlockNode, answer: NodeAnswer<V>) => void,
    onFailed: (node: RedlockNode, error: unknown) => void,
  ) {
    this.onFailed = onFailed
    this.#pending = nodes.length
    this.answers = nodes.map((node) => new NodeAnswer(node, this))
    for (const answer of this.answers) ask(answer.node, answer)
  }

  /** Resolves as soon as `isDecided` says so, at the latest when all answers are in; rejects when the call is cancelled. */
  until(isDecided: () => boolean, call: Call): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#untie = call.onCancel(() => reject(cancelledCall('redlock', call.signal, 'unknown')))
      this.#isDecided = isDecided
      this.#resolve = resolve
      this.#look()
    })
  }

  /** Never rejects. Every node answers or fails, which its time-out sees to. */
  allIn(): Promise<void> {
    return new Promise((resolve) => this.whenAllIn(resolve))
  }

  /** The same without a promise; there is one such callback. */
  whenAllIn(callback: () => void): void {
    if (this.#pending === 0) callback()
    else this.#whenAllIn = callback
  }

  get answered(): readonly Answered<V>[] {
    return this.answers.filter((answer): answer is Answered<V> => answer.state === 'answered')
  }

  get failed(): readonly NodeAnswer<V>[] {
    return this.answers.filter(({ state }) => state === 'failed')
  }

  count(matches: (value: V) => boolean): number {
    let count = 0
    for (const { state, value } of this.answers) if (state === 'answered' && matches(value as V)) count++
    return count
  }

  /** How many may have done what they were asked although they failed. */
  get uncertain(): number {
    return this.answers.filter(({ isUncertain }) => isUncertain).length
  }

  /** Describes the failures of the nodes that did not answer, in a few words. */
  describeFailures(): string {
    return this.failed.map(({ node, error }) => `${node.label}: ${reasonOf(node, error)}`).join('; ')
  }

  /** An answer has come in. */
  heard(): void {
    this.#pending--
    this.#look()
    if (this.#pending > 0) return
    this.#whenAllIn?.()
    this.#whenAllIn = undefined
  }

  #look(): void {
    if (this.#pending > 0 && this.#isDecided?.() !== true) return
    this.#untie?.()
    this.#resolve?.()
    this.#isDecided = this.#untie = this.#resolve = undefined
  }
}

/** The error's reason, without what we, and the server's interpreter, have put around it. */
export function reasonOf(node: RedlockNode, error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  const text = message
    .replace(/^redlock: /, '')
    .replace(/\. It (may or may not have|has not) taken effect\.$/, '')
    .replace(/^script: /, '')
    .replace(/\.? script: [0-9a-f]{40}, on @?user_script:\d+/, '')
  return text.startsWith(`${node.label}: `) ? text.slice(node.label.length + 2) : text
}
