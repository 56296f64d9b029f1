/**
 * Runs of one process for one name take turns before they take a connection: otherwise those who wait for a row in the
 * database would use up the pool, and hold up runs for every other name (T21). Between processes the rows decide.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { InvalidArgumentError } from '../../base/errors.ts'
import { Turns } from '../../base/turns.ts'
import type { SqlRunner } from '../../clients/postgres/index.ts'

interface Lane {
  readonly turns: Turns
  users: number
}

interface RunningEffect {
  readonly lanes: Lanes
  readonly runner: SqlRunner
  readonly outer: RunningEffect | undefined
  over: boolean
}

const current = new AsyncLocalStorage<RunningEffect>()

export class Lanes {
  readonly #lanes = new Map<string, Lane>()

  /** The transaction of the effect that the caller runs in. */
  get inside(): SqlRunner | undefined {
    for (let effect = current.getStore(); effect !== undefined; effect = effect.outer)
      if (effect.lanes === this && !effect.over) return effect.runner
    return undefined
  }

  assertOutside(): void {
    if (this.inside !== undefined)
      throw new InvalidArgumentError(
        'guard',
        'is called inside an effect of its own database, and could wait for itself: give `run` all proofs at once, ' +
          'or use `enter` in the effect.',
      )
  }

  /**
   * `keys` in an order that is the same for everybody. Settles as `told` does, and keeps the lanes until it is over; until
   * then the signal only ends the wait for them.
   */
  run<T>(
    keys: readonly string[],
    body: () => Promise<{ readonly told: Promise<T>; readonly isOver: Promise<void> }>,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      const turn = async () => {
        const { told, isOver } = await body()
        told.then(resolve, reject)
        await isOver
      }
      this.#take(keys, turn, signal).catch(reject)
    })
  }

  async #take<T>(
    keys: readonly string[],
    body: () => Promise<T>,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const [key, ...rest] = keys
    if (key === undefined) return body()
    let lane = this.#lanes.get(key)
    if (lane === undefined) {
      lane = { turns: new Turns(), users: 0 }
      this.#lanes.set(key, lane)
    }
    lane.users++
    try {
      return await lane.turns.take(() => this.#take(rest, body, signal), signal)
    } finally {
      lane.users--
      if (lane.users === 0) this.#lanes.delete(key)
    }
  }

  async runEffect<T>(runner: SqlRunner, effect: () => Promise<T> | T): Promise<T> {
    const running: RunningEffect = { lanes: this, runner, outer: current.getStore(), over: false }
    try {
      return await current.run(running, async () => effect())
    } finally {
      running.over = true
    }
  }
}

/** All guards of one client share them: they would wait for each other's connections. */
const lanesByClient = new WeakMap<object, Lanes>()

export function lanesOf(client: object): Lanes {
  let lanes = lanesByClient.get(client)
  if (lanes === undefined) {
    lanes = new Lanes()
    lanesByClient.set(client, lanes)
  }
  return lanes
}
