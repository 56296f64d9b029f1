/**
 * One after the other: a connection has one transaction at a time, so an effect that awaits something must not have
 * the statements of another run in between.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { Cancellation, unlessCancelled } from './cancellation.ts'
import { InvalidArgumentError } from './errors.ts'

interface Turn {
  readonly turns: Turns
  readonly outer: Turn | undefined
  over: boolean
}

const current = new AsyncLocalStorage<Turn>()

export class Turns {
  #last: Promise<void> = Promise.resolve()

  /** Whether the caller runs within a turn, and would wait for itself if it asked for another. */
  get isInside(): boolean {
    for (let turn = current.getStore(); turn !== undefined; turn = turn.outer)
      if (turn.turns === this && !turn.over) return true
    return false
  }

  async take<T>(body: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    if (this.isInside)
      throw new InvalidArgumentError(
        'guard',
        'is called inside an effect of its own resource, and would wait for itself: give `run` all proofs at once, ' +
          'or use `enter` in the effect.',
      )
    const before = this.#last
    const mine = Promise.withResolvers<void>()
    this.#last = before.then(() => mine.promise)
    const turn: Turn = { turns: this, outer: current.getStore(), over: false }
    const stop = new Cancellation()
    const untie = stop.follow(signal)
    try {
      await unlessCancelled(before, stop)
      return await current.run(turn, body)
    } finally {
      untie()
      turn.over = true
      mine.resolve()
    }
  }
}
