/** The client against servers that are slow, silent or wrong. Their side is played by a server in this process. */
import { waitFor } from 'holdfast-lab/servers'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Exchange, frame, GRPC, GrpcServer, refuse, respond } from '../../../../test/etcd/grpc-server.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import { createFakeClock, type FakeClock } from '../../../testing/fake-clock.ts'
import { seededRandom } from '../../../testing/seeded-random.ts'
import { EtcdClient } from './client.ts'
import { History } from './history.ts'
import { type EtcdAnswer, type Event, type Method, methods } from './messages.ts'
import { Writer } from './protobuf.ts'
import { always, get, getAll, kvsOf, prefixed, put } from './transactions.ts'
import { Watches } from './watches.ts'

const writer = new Writer()
const header = { cluster_id: '7', revision: 5, raft_term: 2 }
const encoded = <R extends EtcdAnswer>({ response }: Method<unknown, R>, message: R): Buffer =>
  writer.framed(() => response.write(writer, message)).subarray(5)

const found = encoded(methods.range, { header, kvs: [], more: false, count: 3 })
const written = encoded(methods.txn, { header, succeeded: true, responses: [{}] })
const created = { created: true, canceled: false, cancel_reason: '', fragment: false, events: [] }
const both = Buffer.concat([frame(found), frame(found)])
const put1 = always([put('a', '1')])

function largeAnswer() {
  const kv = { key: 'k', create_revision: 1, mod_revision: 1, value: 'v'.repeat(4_096), lease: 0 }
  const kvs = Array.from({ length: 40 }, () => kv)
  return { kvs, large: frame(encoded(methods.range, { header, kvs, more: false, count: kvs.length })) }
}

/** The bytes are one frame of HTTP/2, a ping or the answer to one. */
function isPing(bytes: Buffer): boolean {
  return bytes.length === 17 && bytes[3] === 6
}

describe('the client', () => {
  let stack: AsyncDisposableStack
  let clock: FakeClock
  beforeEach(() => {
    stack = new AsyncDisposableStack()
    clock = createFakeClock()
  })
  afterEach(() => stack.disposeAsync())

  const serve = async (onRequest: (exchange: Exchange) => void) =>
    stack.use(await GrpcServer.start(onRequest))
  const connected = (servers: readonly GrpcServer[], user: object = {}) => {
    const client = new EtcdClient('etcd', { hosts: servers.map(({ url }) => url), ...user }, clock)
    stack.defer(() => client.close())
    return client
  }
  /** Time passes in steps, in which pings are answered. */
  const pass = async (ms: number) => {
    for (let left = ms; left > 0; left -= 500) {
      await clock.advance(Math.min(left, 500))
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  }
  /** Settles if the client does. */
  const outcome = async (asked: Promise<unknown>): Promise<unknown> =>
    asked.then(
      () => 'answered',
      (error: { outcome?: string; code?: string }) => error.outcome ?? error.code ?? error,
    )

  describe('T96 every request settles within a bound, also without a limit of its caller', () => {
    test.each(['read', 'write'] as const)('a %s on a connection that was left', async (kind) => {
      const asked: Exchange[] = []
      const server = await serve((exchange) => void asked.push(exchange))
      const client = connected([server])
      const waiting =
        kind === 'read'
          ? client.ask(methods.range, { key: 'a' }, neverCancelled)
          : client.ask(methods.txn, put1, neverCancelled)
      const settled = outcome(waiting)
      const given = new Cancellation()
      const another = outcome(client.ask(methods.range, { key: 'b' }, given))
      await waitFor('both are asked', async () => asked.length === 2 || null)
      await clock.advance(600)
      given.cancel(new Error('given up'))
      expect(await another).toBe('unknown')
      await pass(3_000)
      if (kind === 'read') {
        // It is asked again on another connection.
        await waitFor('it is asked again', async () => asked.length > 2 || null)
        for (const { stream } of asked.slice(2)) respond(stream, frame(found))
      }
      expect(await settled).toBe(kind === 'read' ? 'answered' : 'unknown')
      if (kind === 'write') await waitFor('the connection is gone', async () => server.open === 0 || null)
    })

    test('a request on a connection whose server says that it goes, and then nothing', async () => {
      const server = await serve(({ stream }) => stream.session?.goaway(0, stream.id ?? 0))
      const client = connected([server])
      const startMs = clock.monotonicMs()
      let isDone = false
      const settled = outcome(client.ask(methods.txn, put1, neverCancelled)).finally(() => {
        isDone = true
      })
      await waitFor('it goes', async () => {
        await clock.advance(isDone ? 0 : 500)
        return isDone || null
      })
      expect(await settled).toBe('unknown')
      // Long before the limit of an answer.
      expect(clock.monotonicMs() - startMs).toBeLessThan(10_000)
    })

    test('a request that is never answered, on a connection that answers pings', async () => {
      const server = await serve(() => {})
      const asked = connected([server]).ask(methods.txn, put1, neverCancelled)
      const settled = outcome(asked)
      await pass(22_000)
      expect(await settled).toBe('unknown')
      await expect(asked).rejects.toThrow('within 20000 ms')
    })

    test('an answer that dribbles without an end', async () => {
      const asked: Exchange[] = []
      const server = await serve((exchange) => {
        asked.push(exchange)
        exchange.stream.respond(GRPC)
        exchange.stream.write(frame(found, false, 100_000))
      })
      const settled = outcome(connected([server]).ask(methods.txn, put1, neverCancelled))
      await waitFor('it is asked', async () => asked.length > 0 || null)
      for (let step = 0; step < 45; step++) {
        const [exchange] = asked
        if (exchange?.stream.writable) exchange.stream.write('.')
        await pass(500)
      }
      expect(await settled).toBe('unknown')
    })

    test('a client that is closed meanwhile', async () => {
      const asked: Exchange[] = []
      const server = await serve((exchange) => void asked.push(exchange))
      const client = connected([server])
      const settled = outcome(client.ask(methods.leaseKeepAlive, { ID: 1 }, neverCancelled))
      await waitFor('it is asked', async () => asked.length || null)
      client.close()
      // Without any time that passes.
      expect(await settled).toBe('unknown')
    })

    test('a client that is closed, on a connection that was left', async () => {
      const asked: Exchange[] = []
      const server = await serve((exchange) => void asked.push(exchange))
      const client = connected([server])
      const settled = outcome(client.ask(methods.txn, put1, neverCancelled))
      const given = new Cancellation()
      const another = outcome(client.ask(methods.range, { key: 'a' }, given))
      await waitFor('both are asked', async () => asked.length === 2 || null)
      await clock.advance(600)
      given.cancel(new Error('given up'))
      await another
      await new Promise((resolve) => setImmediate(resolve))
      client.close()
      // Without any time that passes.
      expect(await settled).toBe('unknown')
    })

    test('a server that closes each connection at once', async () => {
      const server = stack.use(
        await GrpcServer.start(
          () => {},
          (link) => {
            link.toClient = (bytes) => link.client.end(bytes)
          },
        ),
      )
      const settled = outcome(connected([server]).ask(methods.txn, put1, neverCancelled))
      expect(['not-applied', 'unknown']).toContain(await settled)
      expect(server.connections).toBeLessThan(5)
    })

    test('a watch that the server does not create', async () => {
      const asked: Exchange[] = []
      const server = await serve((exchange) => {
        asked.push(exchange)
        exchange.stream.respond(GRPC)
      })
      const watches = new Watches(connected([server]), neverCancelled, clock)
      let lost: unknown
      watches.add({ key: 'a' }, { onResponse: () => {}, onLost: (error) => (lost = error) })
      await waitFor('it is asked', async () => asked[0]?.messages.length || null)
      await pass(5_000)
      expect(lost).toMatchObject({ message: expect.stringContaining('not created') })
      expect(watches.count).toBe(0)
    })

    test('a watch on a connection that is left, which is told at once', async () => {
      const server = await serve(({ stream, path }) => {
        if (path !== methods.watch.path) return
        stream.respond(GRPC)
        stream.write(frame(encoded(methods.watch, { header, watch_id: 1, ...created })))
      })
      const client = connected([server])
      const watches = new Watches(client, neverCancelled, clock)
      let [isCreated, isLost] = [false, false]
      watches.add({ key: 'a' }, { onResponse: () => (isCreated = true), onLost: () => (isLost = true) })
      await waitFor('it is created', async () => isCreated || null)
      const given = new Cancellation()
      const asked = outcome(client.ask(methods.range, { key: 'a' }, given))
      await pass(600)
      given.cancel(new Error('given up'))
      expect(await asked).toBe('unknown')
      await waitFor('it is told', async () => isLost || null)
    })

    test.each([
      ['with a status', (stream: Exchange['stream'], bytes: Buffer) => respond(stream, bytes)],
      [
        'without one',
        (stream: Exchange['stream'], bytes: Buffer) => {
          stream.respond(GRPC)
          stream.end(bytes)
        },
      ],
    ])('a watch whose server ends the stream %s, and leaves the other side open', async (_, end) => {
      const server = await serve(({ stream }) =>
        end(stream, frame(encoded(methods.watch, { header, watch_id: 1, ...created }))),
      )
      const watches = new Watches(connected([server]), neverCancelled, clock)
      let [told, isLost] = [0, false]
      watches.add({ key: 'a' }, { onResponse: () => told++, onLost: () => (isLost = true) })
      await waitFor('it is told', async () => isLost || null)
      expect([told, watches.count]).toEqual([1, 0])
    })

    test('a watch in the middle of an event', async () => {
      const asked: Exchange[] = []
      const server = await serve((exchange) => {
        asked.push(exchange)
        exchange.stream.respond(GRPC)
        exchange.stream.write(frame(encoded(methods.watch, { header, watch_id: 1, ...created })))
        exchange.stream.write(frame(found, false, 100_000))
      })
      const watches = new Watches(connected([server]), neverCancelled, clock)
      let [told, isLost] = [0, false]
      watches.add({ key: 'a' }, { onResponse: () => told++, onLost: () => (isLost = true) })
      await waitFor('it is created', async () => told || null)
      await pass(22_000)
      expect(isLost).toBe(true)
    })
  })

  test('a history whose stream ends in the middle of a revision tells each of its events once', async () => {
    const kv = (key: string) => ({ key, create_revision: 6, mod_revision: 6, value: '', lease: 0 })
    const piece = (watch_id: number, fragment: boolean, ...keys: string[]) => {
      const events = keys.map((key): Event => ({ type: 0, kv: kv(key) }))
      return frame(encoded(methods.watch, { header, watch_id, ...created, fragment, events }))
    }
    let streams = 0
    const server = await serve(({ stream, path }) => {
      if (path !== methods.watch.path) return respond(stream, frame(found))
      const id = ++streams
      if (id === 1) return respond(stream, piece(id, true, 'a', 'b'))
      stream.respond(GRPC)
      stream.write(Buffer.concat([piece(id, true, 'a', 'b'), piece(id, false, 'c')]))
    })
    const client = connected([server])
    const watches = new Watches(client, neverCancelled, clock)
    const random = seededRandom(1)
    const history = new History({ client, watches, clock, random }, prefixed('a'), 'origin')
    const told: string[] = []
    const end = new Error('the test ends')
    const reading = (async () => {
      for await (const change of history.from(undefined, neverCancelled))
        if (change.kind === 'event') told.push(change.event.kv.key)
    })().catch((error: unknown) => error)
    await waitFor('the last event', async () => {
      await pass(500)
      return told.includes('c') || null
    })
    history.end(end)
    expect(await reading).toBe(end)
    expect(told).toEqual(['a', 'b', 'c'])
  })

  test('T98 what may be applied twice is asked again after a second of silence, at another member', async () => {
    let [silent, answered, again] = [0, 0, 0]
    const first = await serve(() => void silent++)
    const second = await serve(({ stream }) => {
      answered++
      respond(stream, frame(written))
    })
    const client = connected([first, second])
    const asked = outcome(client.ask(methods.txn, put1, neverCancelled, () => void again++))
    await waitFor('it is asked', async () => silent || null)
    await clock.advance(999)
    await new Promise((resolve) => setImmediate(resolve))
    expect(again).toBe(0)
    await clock.advance(1)
    expect(await asked).toBe('answered')
    expect([silent, answered, again]).toEqual([1, 1, 1])
  })

  test('T98 a second of silence after the other, it is asked five times within a call of five seconds', async () => {
    const asked: Exchange[] = []
    const server = await serve((exchange) => void asked.push(exchange))
    const call = new Cancellation()
    const settled = outcome(connected([server]).ask(methods.leaseKeepAlive, { ID: 1 }, call))
    for (let copies = 1; copies <= 5; copies++) {
      await waitFor(`it is asked ${copies} times`, async () => asked.length === copies || null)
      await clock.advance(copies < 5 ? 1_000 : 999)
    }
    call.cancel(new Error('its limit'))
    expect(await settled).toBe('unknown')
    expect(asked).toHaveLength(5)
  })

  test('T100 a large answer that keeps coming is not asked for again, and its connection is kept', async () => {
    const { large, kvs } = largeAnswer()
    const asked: Exchange[] = []
    const server = await serve((exchange) => {
      asked.push(exchange)
      exchange.stream.respond(GRPC, { waitForTrailers: true })
      exchange.stream.on('wantTrailers', () => exchange.stream.sendTrailers({ 'grpc-status': '0' }))
    })
    const client = connected([server])
    const answer = client.ask(methods.range, { key: 'k' }, neverCancelled)
    await waitFor('it is asked for', async () => asked.length > 0 || null)
    const stream = asked[0]?.stream
    const step = Math.ceil(large.length / 10)
    for (let at = 0; at < large.length; at += step) {
      const given = new Cancellation()
      const another = outcome(client.ask(methods.range, { key: 'a' }, given))
      await waitFor('another is', async () => asked.length > 1 + at / step || null)
      stream?.write(large.subarray(at, at + step))
      // Its answer comes after what was written before it.
      await new Promise<void>((resolve) => stream?.session?.ping(() => resolve()))
      await pass(600)
      given.cancel(new Error('given up'))
      await another
    }
    stream?.end()
    expect((await answer).kvs).toHaveLength(kvs.length)
    expect(server.connections).toBe(1)
  })

  test('T100 a connection whose pong stands behind a large answer is kept', async () => {
    const { kvs } = largeAnswer()
    const range = { header, kvs, more: false, count: kvs.length }
    const large = frame(encoded(methods.txn, { header, succeeded: true, responses: [{}, { range }] }))
    const asked: Exchange[] = []
    const pings: Buffer[] = []
    const server = await serve((exchange) => {
      asked.push(exchange)
      exchange.stream.respond(GRPC, { waitForTrailers: true })
      exchange.stream.on('wantTrailers', () => exchange.stream.sendTrailers({ 'grpc-status': '0' }))
      const { link } = exchange
      link.toClient = (bytes) => {
        if (isPing(bytes)) pings.push(bytes)
        else link.client.write(bytes)
      }
    })
    // It is asked once.
    const write = always([put('a', '1'), getAll(prefixed('k'))])
    const answer = connected([server]).ask(methods.txn, write, neverCancelled)
    await waitFor('it is asked for', async () => asked.length > 0 || null)
    await waitFor('a pong', async () => {
      await pass(500)
      return pings.length || null
    })
    const [exchange] = asked
    const half = Math.ceil(large.length / 2)
    exchange?.stream.write(large.subarray(0, half))
    await pass(2_500)
    exchange?.stream.end(large.subarray(half))
    expect(kvsOf(await answer)).toHaveLength(kvs.length)
  })

  describe('T103 an answer that is not valid is no answer', () => {
    const cases: readonly (readonly [string, (exchange: Exchange) => void])[] = [
      ['nothing, and the status OK', ({ stream }) => refuse(stream, 0)],
      ['an empty message', ({ stream }) => respond(stream, frame(Buffer.alloc(0)))],
      ['a compressed one', ({ stream }) => respond(stream, frame(found, true))],
      ['garbage', ({ stream }) => respond(stream, frame(Buffer.from('garbage, and more of it')))],
      [
        'bytes after a message',
        ({ stream }) => respond(stream, frame(Buffer.concat([found, found])).subarray(0, -3)),
      ],
      ['a cut message', ({ stream }) => respond(stream, frame(found, false, found.length + 9))],
      [
        'a message without the cluster',
        ({ stream }) => respond(stream, frame(found.subarray(found.length - 2))),
      ],
      ['two messages', ({ stream }) => respond(stream, both)],
      ['a message of 2 GiB', ({ stream }) => respond(stream, frame(found, false, 2 ** 31))],
      ['an empty status', ({ stream }) => respond(stream, frame(found), { 'grpc-status': '' })],
      ['a status in words', ({ stream }) => respond(stream, frame(found), { 'grpc-status': 'OK' })],
      ['no status', ({ stream }) => respond(stream, frame(found), {})],
    ]
    test.each(cases)('%s', async (_what, onRequest) => {
      const server = await serve(onRequest)
      const client = connected([server])
      expect(await outcome(client.ask(methods.range, { key: 'a' }, neverCancelled))).toBe('not-applied')
      expect(await outcome(client.ask(methods.txn, put1, neverCancelled))).toBe('unknown')
    })

    test('an answer to another transaction', async () => {
      const server = await serve(({ stream }) => respond(stream, frame(written)))
      const client = connected([server])
      const [reads, more] = [always([get('a')]), always([put('a', '1'), put('b', '1')])]
      expect(await outcome(client.ask(methods.txn, put1, neverCancelled))).toBe('answered')
      expect(await outcome(client.ask(methods.txn, more, neverCancelled))).toBe('unknown')
      expect(await outcome(client.ask(methods.txn, reads, neverCancelled))).toBe('not-applied')
    })

    test('an event without a key, which ends the stream and not the process', async () => {
      const told = { created: false, canceled: false, cancel_reason: '', fragment: false }
      const event = (kv: object) => ({ type: 0, ...kv }) as Event
      const kv = { key: 'a', create_revision: 1, mod_revision: 1, value: '', lease: 0 }
      const events = [event({ kv }), event({})]
      const server = await serve(({ stream }) => {
        stream.respond(GRPC)
        stream.write(frame(encoded(methods.watch, { header, watch_id: 1, ...told, events })))
      })
      const watches = new Watches(connected([server]), neverCancelled, clock)
      const responses: unknown[] = []
      let lost: unknown
      const onResponse = (response: unknown) => responses.push(response)
      watches.add({ key: 'a' }, { onResponse, onLost: (error) => (lost = error) })
      await waitFor('it is lost', async () => lost !== undefined || null)
      expect([responses, watches.count]).toEqual([[], 0])
    })

    test('its connection is left', async () => {
      let count = 0
      const server = await serve(({ stream }) =>
        respond(stream, frame(++count === 1 ? Buffer.alloc(3) : found)),
      )
      const client = connected([server])
      expect(await outcome(client.ask(methods.range, { key: 'a' }, neverCancelled))).toBe('not-applied')
      expect(await outcome(client.ask(methods.range, { key: 'a' }, neverCancelled))).toBe('answered')
      expect(server.connections).toBe(2)
    })

    test.each(['%', '100 % of %zz', '%E0%A4%A'])(
      'the text “%s” of a refusal is shown as it is',
      async (text) => {
        const server = await serve(({ stream }) => refuse(stream, 2, text))
        const asked = connected([server]).ask(methods.txn, put1, neverCancelled)
        await expect(asked).rejects.toMatchObject({
          outcome: 'unknown',
          message: expect.stringContaining(text),
        })
      },
    )
  })

  describe('a stream that was not served is not-applied, and only that', () => {
    test('it was refused', async () => {
      const server = await serve(({ stream }) => stream.close(7))
      expect(await outcome(connected([server]).ask(methods.txn, put1, neverCancelled))).toBe('not-applied')
    })

    test('its connection ends with the same code after it was received', async () => {
      const server = await serve(({ stream }) => stream.session?.goaway(7, stream.id ?? 0))
      expect(await outcome(connected([server]).ask(methods.txn, put1, neverCancelled))).toBe('unknown')
    })

    test('its connection ends before it was received', async () => {
      const asked: Exchange[] = []
      const server = await serve((exchange) => {
        if (asked.push(exchange) === 2) exchange.stream.session?.goaway(7, asked[0]?.stream.id)
      })
      const client = connected([server])
      const first = outcome(client.ask(methods.txn, put1, neverCancelled))
      await waitFor('the first is there', async () => asked.length || null)
      expect(await outcome(client.ask(methods.txn, put1, neverCancelled))).toBe('not-applied')
      expect(await first).toBe('unknown')
    })

    test('it was refused after an answer had begun', async () => {
      const server = await serve(({ stream }) => {
        stream.respond(GRPC)
        setImmediate(() => setImmediate(() => stream.close(7)))
      })
      expect(await outcome(connected([server]).ask(methods.txn, put1, neverCancelled))).toBe('unknown')
    })
  })

  test.each([2, 4, 6])(
    'T101 of %i requests that one member refuses, all come to the next one',
    async (count) => {
      const leaderless = await serve(({ stream }) => refuse(stream, 14, 'etcdserver: no leader'))
      let answered = 0
      const healthy = await serve(({ stream }) => {
        answered++
        respond(stream, frame(found))
      })
      const client = connected([leaderless, healthy])
      const asked = Array.from({ length: count }, () =>
        client.ask(methods.range, { key: 'a' }, neverCancelled),
      )
      expect(await Promise.all(asked.map(outcome))).toEqual(asked.map(() => 'answered'))
      expect(answered).toBe(count)
    },
  )

  describe('T102 the token is asked for once', () => {
    const user = { username: 'ada', password: 'secret' }
    const guarded = async () => {
      const state = { valid: 'first', authentications: 0, held: [] as (() => void)[], isHolding: false }
      const server = await serve(({ stream, path, headers }) => {
        if (path !== methods.authenticate.path)
          return headers.token === state.valid
            ? respond(stream, frame(found))
            : refuse(stream, 16, 'etcdserver: invalid auth token')
        state.authentications++
        const answer = () =>
          respond(stream, frame(encoded(methods.authenticate, { header, token: state.valid })))
        if (state.isHolding) state.held.push(answer)
        else answer()
      })
      return { state, client: connected([server], user) }
    }
    const read = (client: EtcdClient, call = neverCancelled) => client.ask(methods.range, { key: 'a' }, call)

    test('and a caller that gives up does not take it from the others', async () => {
      const { state, client } = await guarded()
      state.isHolding = true
      const given = new Cancellation()
      const [one, ...others] = [read(client, given), read(client), read(client)].map(outcome)
      await waitFor('it is asked for', async () => state.held.length || null)
      given.cancel(new Error('given up'))
      expect(await one).toBe('not-applied')
      state.held[0]?.()
      expect(await Promise.all(others)).toEqual(['answered', 'answered'])
      expect(state.authentications).toBe(1)
    })

    test('when 64 requests are refused with the old one', async () => {
      const { state, client } = await guarded()
      await read(client)
      state.valid = 'second'
      await Promise.all(Array.from({ length: 64 }, () => read(client)))
      expect(state.authentications).toBe(2)
    })

    test('again, when a stream of watches is refused with the old one', async () => {
      const tokens: unknown[] = []
      const server = await serve(({ stream, path, headers }) => {
        if (path === methods.authenticate.path)
          return respond(
            stream,
            frame(encoded(methods.authenticate, { header, token: `token ${tokens.length}` })),
          )
        tokens.push(headers.token)
        stream.respond(GRPC)
        const refused = { ...created, created: false, canceled: true, watch_id: 0 }
        const told = tokens.length === 1 ? refused : { ...created, watch_id: 2 }
        stream.write(frame(encoded(methods.watch, { header, ...told })))
      })
      const watches = new Watches(connected([server], user), neverCancelled, clock)
      const answered = () =>
        new Promise((resolve) =>
          watches.add({ key: 'a' }, { onResponse: () => resolve('created'), onLost: () => resolve('lost') }),
        )
      expect([await answered(), await answered()]).toEqual(['lost', 'created'])
      expect(tokens).toEqual(['token 0', 'token 1'])
    })

    test('and a request that did not get one was not applied', async () => {
      const { state, client } = await guarded()
      state.isHolding = true
      const settled = outcome(client.ask(methods.txn, put1, neverCancelled))
      await waitFor('it is asked for', async () => state.held.length || null)
      await pass(6_000)
      expect(await settled).toBe('not-applied')
    })
  })
})
