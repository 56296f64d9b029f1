/**
 * Three servers that answer with resets, half frames, garbage, silence and good answers, by a seed. Whatever they do: each call
 * settles within its limit with an outcome that is true, nothing is left in flight, and the client works when they do.
 */
import { describe, expect, test } from 'vitest'
import { type Exchange, frame, GRPC, GrpcServer } from '../../../../test/etcd/grpc-server.ts'
import { names, TortureServer } from '../../../../test/etcd/torture.ts'
import { newSeed } from '../../../../test/seed.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { seededRandom } from '../../../testing/seeded-random.ts'
import { EtcdClient } from './client.ts'
import { type EtcdAnswer, type Method, methods } from './messages.ts'
import { Writer } from './protobuf.ts'
import { always, get, put } from './transactions.ts'
import { Watches } from './watches.ts'

const STEPS = 250
/** Of the fake clock. More than all limits of the client together. */
const LONG_MS = 90_000
/** Of this process, which is also that of the servers. One message may have more. */
const MAX_GROWTH = 50 * 2 ** 20

const writer = new Writer()
const header = { cluster_id: '7', revision: 1, raft_term: 2 }
const encoded = <R extends EtcdAnswer>({ response }: Method<unknown, R>, message: R): Buffer =>
  writer.framed(() => response.write(writer, message)).subarray(5)

/** The number by which a request and its answer are known. */
function numberOf(path: string, message: Buffer): number {
  if (path === methods.leaseGrant.path) return methods.leaseGrant.request.read(message).ID ?? 0
  if (path === methods.range.path) return Number(methods.range.request.read(message).key)
  const [{ put, range } = {}] = methods.txn.request.read(message).success
  return Number(put?.key ?? range?.key)
}

function answer(path: string, message: Buffer): Buffer {
  if (path === methods.authenticate.path) return encoded(methods.authenticate, { header, token: 'a token' })
  if (path === methods.watch.path) {
    const watch_id = methods.watch.request.read(message).create?.watch_id ?? 0
    const about = { watch_id, created: true, canceled: false, cancel_reason: '', fragment: false }
    return encoded(methods.watch, { header, ...about, events: [] })
  }
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

describe('servers that behave badly in every way', { timeout: 120_000 }, () => {
  test.each([
    ['without users', {}],
    ['with users', { username: 'ada', password: 'secret' }],
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
    for (let count = 0; count < 3; count++) {
      tortured.push(await TortureServer.start({ answer, isStream, served, random }))
      stack.use(tortured.at(-1)?.server)
    }
    const client = new EtcdClient('etcd', { hosts: tortured.map(({ server }) => server.url), ...user }, clock)
    stack.defer(() => client.close())
    const watches = new Watches(client, neverCancelled, clock)
    const before = memoryInUse()

    const all: Asked[] = []
    const start = () => {
      const kind = kinds[Math.floor(random.fraction() * kinds.length)] ?? 'read'
      const one: Asked = { kind, number: all.length + 1, call: new Cancellation() }
      all.push(one)
      asked(client, one).then(
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

    let lost = 0
    let watched = 0
    for (let count = 0; count < STEPS; count++) {
      for (let more = random.fraction() * 4; more > 1; more--) start()
      if (random.fraction() < 0.2) {
        watched++
        const end = watches.add({ key: 'w' }, { onResponse: () => {}, onLost: () => lost++ })
        if (random.fraction() < 0.3) end()
      }
      await step(random.fraction() * 300)
      expect(settledWhenCancelled(), `seed ${seed}: cancelled, and not settled`).toEqual([])
    }
    for (const server of tortured) server.heal()
    for (let passed = 0; passed < LONG_MS; passed += 500) await step(500)

    const label = `seed ${seed}`
    expect(
      all.filter(({ settled }) => settled === undefined),
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
    expect(lost, `${label}: watches were lost`).toBeGreaterThan(0)
    expect(watched).toBeGreaterThan(lost / 2)

    // The client works, and what it has left is gone.
    const last: Asked = { kind: 'read', number: 1e9, call: new Cancellation() }
    expect(await asked(client, last), label).toBe(1e9)
    const open = () => tortured.reduce((sum, { server }) => sum + server.open, 0)
    for (let tries = 0; open() > 1 && tries < 100; tries++) await step(500)
    expect(open(), `${label}: connections`).toBe(1)
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
