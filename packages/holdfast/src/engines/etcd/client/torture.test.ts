/**
 * Three servers that answer with resets, half frames, garbage, silence and good answers, by a seed. Whatever they do: each call
 * settles within its limit with an outcome that is true, a history is told whole and in order, nothing is left in flight, and the
 * client works when they do.
 */
import { describe, expect, test } from 'vitest'
import { type Exchange, frame, GRPC, GrpcServer } from '../../../../test/etcd/grpc-server.ts'
import { encoded, SharedHistory } from '../../../../test/etcd/shared-history.ts'
import { names, TortureServer } from '../../../../test/etcd/torture.ts'
import { newSeed } from '../../../../test/seed.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { ClosedError, isHoldfastError } from '../../../base/errors.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { seededRandom } from '../../../testing/seeded-random.ts'
import { ANSWER_LIMIT_MS } from './channel.ts'
import { EtcdClient } from './client.ts'
import { History } from './history.ts'
import { methods, type WatchResponse } from './messages.ts'
import { always, get, prefixed, put } from './transactions.ts'
import { type Watcher, Watches } from './watches.ts'

const STEPS = 450
/** Of the fake clock: a step of the test. */
const STEP_MS = 500
/**
 * The client's own bounds, for calls without a limit. Asking ends after 20 s. What is asked last may have to find a member (two
 * seconds for each) and to get a token (5 s) before it has its 20 s for an answer.
 */
const SETTLED_WITHIN_MS = 2 * ANSWER_LIMIT_MS + 3 * 2_000 + 5_000 + STEP_MS
/** Of this process, which is also that of the servers. One message may have more. */
const MAX_GROWTH = 50 * 2 ** 20

/** It is a number, as all keys here. No call of the test has it. */
const WATCHED = '0'

/** The number by which a request and its answer are known. */
function numberOf(path: string, message: Buffer): number {
  if (path === methods.leaseGrant.path) return methods.leaseGrant.request.read(message).ID ?? 0
  if (path === methods.range.path) return Number(methods.range.request.read(message).key)
  const [{ put, range } = {}] = methods.txn.request.read(message).success
  return Number(put?.key ?? range?.key)
}

function answer(history: SharedHistory, path: string, message: Buffer): Buffer {
  const { header } = history
  if (path === methods.authenticate.path) return encoded(methods.authenticate, { header, token: 'a token' })
  if (path === methods.watch.path) return history.created(message)
  const number = numberOf(path, message)
  if (path === methods.leaseGrant.path) return encoded(methods.leaseGrant, { header, ID: number, TTL: 1 })
  const range = { kvs: [], more: false, count: number }
  if (path === methods.range.path) return encoded(methods.range, { header, ...range })
  const [operation] = methods.txn.request.read(message).success
  const responses = [operation?.range === undefined ? {} : { range }]
  return encoded(methods.txn, { header: { ...header, revision: number }, succeeded: true, responses })
}

const isStream = (path: string) => path === methods.watch.path

function memoryInUse(): number {
  globalThis.gc?.()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

/** A 'repeatable' write may be applied twice. */
type Kind = 'read' | 'grant' | 'write' | 'repeatable' | 'transaction that reads'
const kinds: readonly Kind[] = ['read', 'grant', 'write', 'repeatable', 'transaction that reads']

interface Asked {
  readonly kind: Kind
  readonly number: number
  readonly call: Cancellation
  /** On the fake clock. */
  readonly askedMs: number
  settledMs?: number
  settled?: 'answered' | 'not-applied' | 'unknown'
  wrong?: unknown
}

async function asked(client: EtcdClient, { kind, number, call }: Asked): Promise<number> {
  const key = String(number)
  if (kind === 'grant') return (await client.ask(methods.leaseGrant, { ID: number, TTL: 1 }, call)).ID
  if (kind === 'read') return (await client.ask(methods.range, { key }, call)).count
  const transaction = always([kind === 'transaction that reads' ? get(key) : put(key, 'x')])
  const onAgain = kind === 'repeatable' ? () => {} : undefined
  return (await client.ask(methods.txn, transaction, call, onAgain)).header?.revision ?? 0
}

/** Watches the key, once created. Nothing may be told after the watch is over. */
class TestWatcher implements Watcher {
  isCreated = false
  lost = 0
  isOver = false
  readonly heard: number[] = []
  wrong = 0
  readonly #thenAgain: (() => void) | undefined

  /** `thenAgain`: it was lost. */
  constructor(thenAgain?: () => void) {
    this.#thenAgain = thenAgain
  }

  onResponse({ created, events }: WatchResponse): void {
    if (this.isOver) this.wrong++
    this.isCreated ||= created
    for (const { kv } of events) this.heard.push(kv.mod_revision)
  }

  onLost(): void {
    if (this.isOver) this.wrong++
    this.lost++
    this.isOver = true
    this.#thenAgain?.()
  }
}

/** Follows the history as a watcher of locks does: it begins again where it was, whatever fails. */
class Reader {
  readonly told: number[] = []
  gaps = 0
  wrong: unknown
  #history: History | undefined
  #isOver = false

  async read(open: () => History, pause: () => Promise<void>): Promise<void> {
    let cursor: string | undefined
    while (!this.#isOver) {
      this.#history = open()
      try {
        for await (const change of this.#history.from(cursor, neverCancelled)) {
          cursor = change.cursor
          if (change.kind === 'gap') this.gaps++
          else this.told.push(change.event.kv.mod_revision)
        }
      } catch (error) {
        if (!isHoldfastError(error)) this.wrong ??= error
      }
      this.#history.end(new ClosedError('The history'))
      await pause()
    }
  }

  end(): void {
    this.#isOver = true
    this.#history?.end(new ClosedError('The history'))
  }
}

describe('servers that behave badly in every way', () => {
  test.each([
    ['without users', {}],
    ['with users', { username: 'ada', password: 'secret' }],
    ['without users, once more', {}],
    ['with users, once more', { username: 'ada', password: 'secret' }],
  ])('T96 T103 each call settles with a true outcome, and nothing is left (%s)', async (_what, user) => {
    const seed = newSeed()
    const random = seededRandom(seed)
    const clock = createFakeClock()
    const servedBy = new Map<number, number>()
    const served = ({ path, messages: [message] }: Exchange) => {
      if (message === undefined || isStream(path) || path === methods.authenticate.path) return
      const number = numberOf(path, message)
      servedBy.set(number, (servedBy.get(number) ?? 0) + 1)
    }
    await using stack = new AsyncDisposableStack()
    const tortured: TortureServer[] = []
    const shared = new SharedHistory(WATCHED)
    const terms = {
      answer: (path: string, message: Buffer) => answer(shared, path, message),
      isStream,
      untold: (messages: readonly Buffer[], answered: number) => shared.untold(messages, answered),
      served,
      random,
    }
    for (let count = 0; count < 3; count++) {
      tortured.push(await TortureServer.start(terms))
      stack.use(tortured.at(-1)?.server)
    }
    const client = new EtcdClient('etcd', { hosts: tortured.map(({ server }) => server.url), ...user }, clock)
    stack.defer(() => client.close())
    const watches = new Watches(client, neverCancelled, clock)
    const before = memoryInUse()
    const change = () => {
      shared.revision++
      for (const server of tortured) server.tell()
    }
    const readers = Array.from({ length: 3 }, () => new Reader())
    const range = prefixed(WATCHED)
    const open = () => new History({ client, watches, clock, random }, range, 'origin')
    const pause = () => new Promise<void>((resolve) => clock.setTimer(100, resolve))
    for (const reader of readers) void reader.read(open, pause)
    stack.defer(() => {
      for (const reader of readers) reader.end()
    })

    const all: Asked[] = []
    const start = () => {
      const kind = kinds[Math.floor(random.fraction() * kinds.length)] ?? 'read'
      const one: Asked = {
        kind,
        number: all.length + 1,
        call: new Cancellation(),
        askedMs: clock.monotonicMs(),
      }
      all.push(one)
      asked(client, one)
        .then(
          (number) => {
            one.settled = 'answered'
            if (number !== one.number) one.wrong = `the answer of ${number}`
          },
          (error: unknown) => {
            if (isHoldfastError(error, 'BACKEND_UNAVAILABLE')) one.settled = error.outcome
            // Another error of the library's: what etcd refuses for good.
            else if (isHoldfastError(error)) one.settled = 'not-applied'
            else one.wrong = error
          },
        )
        .finally(() => {
          one.settledMs = clock.monotonicMs()
        })
      if (random.fraction() < 0.8)
        clock.setTimer(random.fraction() * 4_000, () => {
          one.call.cancel(new Error('its limit'))
        })
    }
    const settledWhenCancelled = () =>
      all.filter(({ call, settled, wrong }) => call.cancelled && !settled && !wrong)
    const step = async (ms: number) => {
      await clock.advance(ms)
      await new Promise((resolve) => setTimeout(resolve, 2))
    }

    const watchers: TestWatcher[] = []
    const watch = (thenAgain?: () => void) => {
      const watcher = new TestWatcher(thenAgain)
      watchers.push(watcher)
      return { watcher, end: watches.add({ key: WATCHED }, watcher) }
    }
    const watchOn = () => void watch(() => clock.setTimer(100, watchOn))
    for (let count = 0; count < 3; count++) watchOn()
    for (let count = 0; count < STEPS; count++) {
      for (let more = random.fraction() * 4; more > 1; more--) start()
      if (random.fraction() < 0.2) {
        const { watcher, end } = watch()
        if (random.fraction() < 0.3) {
          end()
          watcher.isOver = true
        }
      }
      if (random.fraction() < 0.3) change()
      await step(random.fraction() * 300)
      expect(settledWhenCancelled(), `seed ${seed}: cancelled, and not settled`).toEqual([])
    }
    for (const server of tortured) server.heal()
    for (let passed = 0; passed < SETTLED_WITHIN_MS; passed += STEP_MS) await step(STEP_MS)

    const label = `seed ${seed}`
    const took = ({ askedMs, settledMs = Number.POSITIVE_INFINITY }: Asked) => settledMs - askedMs
    expect(
      all.filter((one) => took(one) > SETTLED_WITHIN_MS),
      label,
    ).toEqual([])
    expect(
      all.filter(({ wrong }) => wrong !== undefined),
      label,
    ).toEqual([])
    const times = (one: Asked) => servedBy.get(one.number) ?? 0
    const writes = all.filter(({ kind }) => kind === 'write' || kind === 'grant')
    expect(
      writes.filter((one) => times(one) > 1),
      `${label}: writes that were served twice`,
    ).toEqual([])
    const changing = all.filter(({ kind }) => kind !== 'read' && kind !== 'transaction that reads')
    expect(
      changing.filter((one) => one.settled === 'not-applied' && times(one) > 0),
      `${label}: served, and said to be not applied`,
    ).toEqual([])
    expect(
      all.filter((one) => one.settled === 'answered' && times(one) === 0),
      `${label}: answered by nobody`,
    ).toEqual([])
    const given = new Set(tortured.flatMap((server) => [...server.given]))
    expect(
      names.filter((name) => !given.has(name)),
      `${label}: not given`,
    ).toEqual([])
    const outcomes = new Set(all.map(({ settled }) => settled))
    expect(outcomes.size, `${label}: every outcome was seen`).toBe(3)

    // Whoever watches hears of a change, and once. The others were told that they do not.
    const until = async (holds: () => boolean) => {
      for (let tries = 0; !holds() && tries < 1_000; tries++) await step(10)
    }
    change()
    const surviving = watchers.filter(({ isOver }) => !isOver)
    const hearing = [...surviving.map(({ heard }) => heard), ...readers.map(({ told }) => told)]
    await until(() => hearing.every((heard) => heard.at(-1) === shared.revision))
    await step(STEP_MS)
    expect(surviving.length, `${label}: watches that survive`).toBeGreaterThanOrEqual(3)
    for (const { isCreated, heard } of surviving)
      expect([isCreated, heard.filter((revision) => revision === shared.revision)], label).toEqual([
        true,
        [shared.revision],
      ])
    const lost = watchers.filter((watcher) => watcher.lost > 0)
    expect(lost.length, `${label}: watches were lost`).toBeGreaterThan(0)
    for (const watcher of watchers) {
      expect([watcher.wrong, watcher.lost <= 1], `${label}: told after its end`).toEqual([0, true])
      expect(new Set(watcher.heard).size, `${label}: told twice`).toBe(watcher.heard.length)
    }
    for (const { told, gaps, wrong } of readers) {
      const [first = 0] = told
      const all = Array.from({ length: shared.revision - first + 1 }, (_, index) => first + index)
      expect([told, gaps, wrong], `${label}: the history, whole and in order`).toEqual([all, 0, undefined])
    }

    // The client works, and what it has left is gone.
    const last: Asked = { kind: 'read', number: 1e9, call: new Cancellation(), askedMs: 0 }
    expect(await asked(client, last), label).toBe(1e9)
    const connections = () => tortured.reduce((sum, { server }) => sum + server.open, 0)
    for (let tries = 0; connections() > 1 && tries < 100; tries++) await step(500)
    expect(connections(), `${label}: connections`).toBe(1)
    // The stream of watches.
    expect(client.inFlight, `${label}: in flight`).toBeLessThanOrEqual(1)
    expect(memoryInUse() - before, `${label}: bytes that stay`).toBeLessThan(MAX_GROWTH)
  })

  test('T103 an answer without an end is given up, however fast it comes', async () => {
    const message = Buffer.alloc(2 ** 20)
    let sent = 0
    await using server = await GrpcServer.start(({ stream }) => {
      stream.respond(GRPC)
      // One message that is as large as may be, and never complete.
      stream.write(frame(Buffer.alloc(0), false, 64 * 2 ** 20))
      const more = () => {
        for (let room = true; room && !stream.destroyed; sent += message.length) room = stream.write(message)
      }
      stream.on('drain', more)
      more()
    })
    const client = new EtcdClient('etcd', { hosts: [server.url] }, createFakeClock())
    const asked = client.ask(methods.leaseGrant, { ID: 1, TTL: 1 }, neverCancelled)
    await expect(asked).rejects.toMatchObject({ outcome: 'unknown' })
    // And what lies in sockets.
    expect(sent).toBeLessThan(2 * 64 * 2 ** 20)
    client.close()
  })
})
