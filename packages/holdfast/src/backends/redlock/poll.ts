/** One question to all nodes at once, and the votes as they come in. */

import { outcomeOf } from '../../base/errors.ts'
import { cancelledCall } from '../../kit/backend-kit.ts'
import type { Call } from '../../spi.ts'
import type { RedlockNode } from './node.ts'

export interface Answered<V> {
  readonly node: RedlockNode
  readonly value: V
}

export interface Failed {
  readonly node: RedlockNode
  readonly error: unknown
}

export class Poll<V> {
  readonly answered: Answered<V>[] = []
  readonly failed: Failed[] = []
  /** Never rejects. Settles when every node has answered or failed, which its time-out sees to. */
  readonly allIn: Promise<void>
  #isAllIn = false
  #decided: { readonly isDecided: () => boolean; readonly resolve: () => void } | undefined

  constructor(
    nodes: readonly RedlockNode[],
    ask: (node: RedlockNode) => Promise<V>,
    onFailed: (node: RedlockNode, error: unknown) => void,
  ) {
    const votes = nodes.map((node) =>
      ask(node).then(
        (value) => {
          this.answered.push({ node, value })
          this.#look()
        },
        (error: unknown) => {
          this.failed.push({ node, error })
          onFailed(node, error)
          this.#look()
        },
      ),
    )
    this.allIn = Promise.all(votes).then(() => {
      this.#isAllIn = true
      this.#look()
    })
  }

  /** Resolves as soon as `isDecided` says so, at the latest when all votes are in; rejects when the call is cancelled. */
  until(isDecided: () => boolean, call: Call): Promise<void> {
    return new Promise((resolve, reject) => {
      const untie = call.onCancel(() => reject(cancelledCall('redlock', call.signal, 'unknown')))
      this.#decided = {
        isDecided,
        resolve: () => {
          untie()
          resolve()
        },
      }
      this.#look()
    })
  }

  /** Every node has answered or failed. */
  get isAllIn(): boolean {
    return this.#isAllIn
  }

  count(matches: (value: V) => boolean): number {
    return this.answered.filter(({ value }) => matches(value)).length
  }

  /** What became of the nodes that did not answer, in a few words. */
  describeFailures(): string {
    return this.failed.map(({ node, error }) => `${node.label}: ${reasonOf(node, error)}`).join('; ')
  }

  /** Those that may have done what they were asked all the same, or may do it yet. */
  get uncertain(): readonly RedlockNode[] {
    return this.failed.filter(({ error }) => outcomeOf(error) === 'unknown').map(({ node }) => node)
  }

  #look(): void {
    if (this.#isAllIn || this.#decided?.isDecided()) this.#decided?.resolve()
  }
}

/** What the node or the client said, without what we, and the server's interpreter, have put around it. */
export function reasonOf(node: RedlockNode, error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  const text = message
    .replace(/^redlock: /, '')
    .replace(/\. It (may or may not have|has not) taken effect\.$/, '')
    .replace(/^script: /, '')
    .replace(/\.? script: [0-9a-f]{40}, on @?user_script:\d+/, '')
  return text.startsWith(`${node.label}: `) ? text.slice(node.label.length + 2) : text
}
