import { describe, expect, test } from 'vitest'
import { callWith } from '../base/aborting.ts'
import { BackendUnavailableError } from '../base/errors.ts'
import type { Call, WatchEvent } from '../spi.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { followLog, type LogPage, type LogPicture, LogWatchers } from './follow-log.ts'
import type { ToldEvent } from './watching.ts'

const toldOf = (name: string): ToldEvent => ({ kind: 'acquired', name, id: name, holder: 'h', token: 1n })

/** A log in an array, whose cursors are `log:1`. */
class ArrayLog extends LogWatchers<number> {
  readonly clock = createFakeClock()
  readonly retry = { clock: this.clock, everyMs: 100 }
  readonly names: (string | null)[] = []
  readonly steps: string[] = []
  first = 0
  /** Holders of the picture that the log may tell of as well, and where the log was when the picture was begun. */
  alsoLogged: readonly string[] = []
  pictureAt: number | undefined
  /** Called before each read. */
  beforeRead: () => Promise<void> = async () => {}

  add(...names: (string | null)[]): void {
    this.names.push(...names)
    this.changed()
  }

  protected started(): void {
    this.steps.push('started')
  }

  protected stopped(): void {
    this.steps.push('stopped')
  }

  async head(_call: Call): Promise<number> {
    return this.names.length
  }

  protected async readFrom(from: number): Promise<LogPage<number> | null> {
    this.steps.push(`read ${from}`)
    const names = this.names.slice(from, from + 2)
    await this.beforeRead()
    if (from < this.first || from > this.names.length) return null
    const events = names.map((name, index) => ({
      event: name === null ? null : toldOf(name),
      at: from + index + 1,
    }))
    return { events, next: from + names.length, isLast: names.length < 2 }
  }

  async picture(prefix: string): Promise<LogPicture<number>> {
    this.steps.push('picture')
    const { alsoLogged } = this
    const holders = [`${prefix}held`, ...alsoLogged].map(toldOf)
    const at = this.pictureAt ?? this.names.length
    return { at, restart: 'log:gap', holders, alsoLogged: new Set(alsoLogged) }
  }

  cursorOf(at: number): string {
    return `log:${at}`
  }

  positionAt(cursor: string): number | null {
    const [, at] = /^log:(\d+)$/.exec(cursor) ?? []
    return at === undefined ? null : Number(at)
  }
}

function follow(log: ArrayLog, cursor?: string, prefix = '') {
  const controller = new AbortController()
  const seen: string[] = []
  const read = async () => {
    for await (const event of followLog(log, prefix, cursor, callWith(controller.signal)))
      seen.push(shown(event))
    return 'ended'
  }
  const shown = (event: WatchEvent) => `${event.kind === 'gap' ? 'gap' : event.name} ${event.cursor}`
  const end = read().catch((error: Error) => error.message)
  return { seen, end, cancel: () => controller.abort() }
}

describe('following a log', () => {
  test('without a cursor it starts now, and each event has the cursor after it', async () => {
    const log = new ArrayLog()
    log.add('before')
    const { seen, end, cancel } = follow(log, undefined, 'a/')
    await log.clock.settle()
    log.add('a/1', 'b/1', null, 'a/2')
    await log.clock.settle()
    expect(seen).toEqual(['a/1 log:2', 'a/2 log:5'])
    cancel()
    expect(await end).toBe('ended')
    expect(log.steps.at(0)).toBe('started')
    expect(log.steps.at(-1)).toBe('stopped')
  })

  test('a cursor is gone on from, event by event', async () => {
    const log = new ArrayLog()
    log.add('one', 'two', 'three')
    const { seen, cancel } = follow(log, 'log:1')
    await log.clock.settle()
    expect(seen).toEqual(['two log:2', 'three log:3'])
    expect(log.steps).toEqual(['started', 'read 1', 'read 3'])
    cancel()
  })

  test.each(['other:1', 'log:gap', 'log:1', 'log:9'])(
    'T75 the cursor %s, which the log lacks, is a gap',
    async (cursor) => {
      const log = new ArrayLog()
      log.add('one', 'two')
      log.first = 2
      const { seen, cancel } = follow(log, cursor)
      await log.clock.settle()
      log.add('three')
      await log.clock.settle()
      expect(seen).toEqual(['gap log:gap', 'held log:2', 'three log:3'])
      cancel()
    },
  )

  test('T109 what a picture has told is not told again, also to a watcher that comes back with a cursor of it', async () => {
    const log = new ArrayLog()
    log.alsoLogged = ['x', 'y']
    log.pictureAt = 0
    log.add('between', 'x', 'y', 'last')
    const first = follow(log, 'other:1')
    await log.clock.settle()
    expect(first.seen).toEqual([
      'gap log:gap',
      'held log:gap',
      'x log:gap',
      'y log:0+x+y',
      'between log:1+x+y',
      'last log:4',
    ])
    for (const cursor of ['log:0+x+y', 'log:1+x+y', 'log:4']) {
      const next = follow(log, cursor)
      await log.clock.settle()
      expect(next.seen).toEqual(first.seen.slice(first.seen.findIndex((each) => each.endsWith(cursor)) + 1))
      next.cancel()
    }
    first.cancel()
  })

  test('T109 what the log turns out not to tell again is forgotten, and so many that a cursor would be long are a gap', async () => {
    const log = new ArrayLog()
    log.alsoLogged = ['x']
    const few = follow(log, 'other:1')
    await log.clock.settle()
    log.add('one')
    await log.clock.settle()
    expect(few.seen.slice(-2)).toEqual(['x log:0+x', 'one log:1'])
    few.cancel()
    log.alsoLogged = Array.from({ length: 501 }, (_, number) => `id ${number}`)
    const many = follow(log, 'other:1')
    await log.clock.settle()
    expect(many.seen.at(-1)).toBe('id 500 log:gap')
    many.cancel()
  })

  test('an engine that cannot be reached is asked again, and nothing is missed', async () => {
    const log = new ArrayLog()
    const { seen, cancel } = follow(log)
    await log.clock.settle()
    log.beforeRead = async () => {
      throw new BackendUnavailableError('log', 'away', 'unknown')
    }
    log.add('one')
    await log.clock.advance(250)
    expect(log.steps.filter((step) => step === 'read 0')).toHaveLength(4)
    log.beforeRead = async () => {}
    await log.clock.advance(100)
    expect(seen).toEqual(['one log:1'])
    cancel()
  })

  test('any other failure ends the watch', async () => {
    const log = new ArrayLog()
    log.beforeRead = async () => {
      throw new Error('denied')
    }
    expect(await follow(log).end).toBe('denied')
    expect(log.steps.at(-1)).toBe('stopped')
  })

  test('a watch that is cancelled ends although its read is not answered', async () => {
    const log = new ArrayLog()
    log.beforeRead = () => new Promise(() => {})
    const { end, cancel } = follow(log)
    await log.clock.settle()
    cancel()
    expect(await end).toBe('ended')
  })
})

describe('the watchers of a process', () => {
  test('T89 those at the same position share a read', async () => {
    const log = new ArrayLog()
    const all = Array.from({ length: 50 }, () => follow(log))
    await log.clock.settle()
    log.steps.length = 0
    log.add('one')
    await log.clock.settle()
    expect(log.steps).toEqual(['read 0'])
    for (const { seen } of all) expect(seen).toEqual(['one log:1'])
    for (const { cancel } of all) cancel()
    await Promise.all(all.map(({ end }) => end))
    expect(log.steps).toEqual(['read 0', 'stopped'])
  })

  test('a read that began before an event is not shared with a watcher that knows of the event', async () => {
    const log = new ArrayLog()
    const { promise, resolve } = Promise.withResolvers<void>()
    log.beforeRead = () => promise
    const early = follow(log)
    await log.clock.settle()
    log.names.push('one')
    log.beforeRead = async () => {}
    log.changed()
    const late = follow(log, 'log:0')
    await log.clock.settle()
    expect(late.seen).toEqual(['one log:1'])
    resolve()
    await log.clock.settle()
    expect(early.seen).toEqual(['one log:1'])
    early.cancel()
    late.cancel()
  })

  test('a failure ends all watches, and the next watch may succeed', async () => {
    const log = new ArrayLog()
    const all = [follow(log), follow(log)]
    await log.clock.settle()
    log.fail(new Error('denied'))
    expect(await Promise.all(all.map(({ end }) => end))).toEqual(['denied', 'denied'])
    const next = follow(log)
    await log.clock.settle()
    log.add('one')
    await log.clock.settle()
    expect(next.seen).toEqual(['one log:1'])
    next.cancel()
  })

  test('after its close no watch begins or goes on, and it stops once', async () => {
    const log = new ArrayLog()
    const before = follow(log)
    await log.clock.settle()
    log.close(new Error('closed'))
    expect(await before.end).toBe('closed')
    expect(await follow(log).end).toBe('closed')
    expect(log.steps.filter((step) => step === 'stopped')).toHaveLength(1)
  })
})
