/** Reads the events of a watch in the background, and keeps the error that ended it. */
import assert from 'node:assert/strict'
import { compareNames } from '../../base/names.ts'
import type { Backend, WatchEvent } from '../../spi.ts'
import { call } from './requests.ts'
import type { Stage } from './stage.ts'

export class Watcher {
  readonly events: WatchEvent[] = []
  ended = false
  /** The error that the watch threw. */
  error: unknown
  readonly #stage: Stage
  readonly #controller = new AbortController()

  constructor(stage: Stage, backend: Backend, prefix: string, cursor?: string) {
    this.#stage = stage
    const options = cursor === undefined ? {} : { cursor }
    const events = backend.watch?.(prefix, options, call(this.#controller.signal))
    assert(events !== undefined, 'a backend that can watch has watch')
    this.#read(events)
      .catch((error: unknown) => {
        this.error = error ?? new Error('a rejection without an error')
      })
      .finally(() => {
        this.ended = true
      })
  }

  static async start(stage: Stage, prefix = '', cursor?: string): Promise<Watcher> {
    const watcher = new Watcher(stage, await stage.client(), prefix, cursor)
    await stage.quiet()
    return watcher
  }

  /** `acquired x`, `released x`, `gap`. */
  get story(): string[] {
    return this.events.map((event) => (event.kind === 'gap' ? 'gap' : `${event.kind} ${event.name}`))
  }

  /** Waits until that many events have come, or something else is so. */
  async receives(count: number, isEnough = () => false): Promise<void> {
    const isDone = () => this.events.length >= count || isEnough() || this.ended
    await this.#stage.eventually('the events arrive', isDone).catch((cause: unknown) => {
      throw new Error(`${this.events.length} of ${count} events came: ${this.story.join(', ')}`, { cause })
    })
    this.#expectNoError(`it failed after ${this.events.length} events: ${this.story.join(', ')}`)
  }

  /**
   * Events that are seen within a while. The events of a name come in their order; those of two names may overtake each other where
   * they live on different servers.
   */
  async sees(...story: string[]): Promise<void> {
    await this.receives(story.length)
    assert.deepEqual(byName(this.story), byName(story))
  }

  /** Cancels the call. The watch must end quietly. */
  async stop(): Promise<void> {
    this.#controller.abort()
    await this.#stage.eventually('the watch ends', () => this.ended)
    this.#expectNoError('it was cancelled and did not end quietly')
  }

  #expectNoError(what: string): void {
    if (this.error !== undefined) throw new Error(`watch: ${what}: ${this.error}`, { cause: this.error })
  }

  async #read(events: AsyncIterable<WatchEvent>): Promise<void> {
    for await (const event of events) this.events.push(event)
  }
}

/** Stable, so that the order of each name is kept. */
function byName(story: readonly string[]): string[] {
  const nameOf = (event: string) => event.slice(event.indexOf(' ') + 1)
  return story.toSorted((a, b) => compareNames(nameOf(a), nameOf(b)))
}
