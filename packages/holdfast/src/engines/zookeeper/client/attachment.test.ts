/** What leaves the client when it attaches a session, and what it makes of answers that real members give rarely. Their side is played here. */
import { createServer, type Server, type Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { onPackets } from '../../../../test/zookeeper/torture.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { call } from '../../../testing/conformance/requests.ts'
import { createFakeClock, type FakeClock } from '../../../testing/fake-clock.ts'
import { seededRandom } from '../../../testing/seeded-random.ts'
import { type Session, ZooKeeperClient } from './index.ts'
import { type Field, frame } from './jute.ts'
import { passwordOf } from './password.ts'

const TIMEOUT_MS = 9_000
const CONNECT = 0
const [DELETE, EXISTS, SET_DATA, PING, CLOSE, AUTH, GET_EPHEMERALS, SET_WATCHES] = [
  2, 3, 5, 11, -11, 100, 103, 105,
]
const stat: Field[] = [7n, 8n, 0n, 0n, 1, 0, 0, 0n, 0, 0, 1n]
const bodies: Record<number, Field[]> = { [EXISTS]: stat, [SET_DATA]: stat, [GET_EPHEMERALS]: [0] }

interface Packet {
  /** 0 for a ConnectRequest. */
  readonly code: number
  readonly xid: number
  readonly bytes: Buffer
  readonly socket: Socket
}

/** A member that answers as `answer` says; without it, as a good one. */
class Member {
  readonly #server: Server
  readonly packets: Packet[] = []
  /** Codes of the packets that came in one chunk. */
  readonly chunks: number[][] = []
  readonly #sockets: Socket[] = []
  answer: (packet: Packet) => Buffer | null = (packet) => good(packet)

  private constructor(server: Server) {
    this.#server = server
    server.on('connection', (socket) => this.#serve(socket))
  }

  static async start(): Promise<Member> {
    const server = createServer({ noDelay: true })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    return new Member(server)
  }

  get host(): string {
    const address = this.#server.address()
    return `127.0.0.1:${typeof address === 'object' ? address?.port : 0}`
  }

  get codes(): number[] {
    return this.packets.map(({ code }) => code)
  }

  reset(): void {
    for (const socket of this.#sockets.splice(0)) socket.resetAndDestroy()
  }

  #serve(socket: Socket): void {
    this.#sockets.push(socket)
    socket.on('error', () => {})
    let isConnected = false
    socket.on('data', () => this.chunks.push([]))
    onPackets(socket, (bytes) => {
      const code = isConnected ? bytes.readInt32BE(4) : CONNECT
      const packet = { code, xid: bytes.readInt32BE(0), bytes, socket }
      isConnected = true
      this.packets.push(packet)
      this.chunks.at(-1)?.push(code)
      const answer = this.answer(packet)
      if (answer !== null && !socket.destroyed) socket.write(answer)
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}

const connected = (timeoutMs: number, id: bigint) => frame([0, timeoutMs, id, passwordOf(id), false])
const refused = ({ xid }: Packet, error: number) => frame([xid, 9n, error])

function good({ code, xid, bytes }: Packet): Buffer {
  if (code === CONNECT) return connected(TIMEOUT_MS, bytes.readBigInt64BE(16) || 42n)
  return frame([xid, 9n, 0, ...(bodies[code] ?? [])])
}

describe('an attachment', () => {
  let stack: AsyncDisposableStack
  let clock: FakeClock
  let member: Member
  beforeEach(async () => {
    stack = new AsyncDisposableStack()
    clock = createFakeClock()
    member = stack.use(await Member.start())
  })
  afterEach(() => stack.disposeAsync())

  const client = (options: object = { acl: 'open' }) => {
    const made = new ZooKeeperClient(
      'zookeeper',
      { hosts: [member.host], ...options },
      clock,
      seededRandom(1),
    )
    stack.defer(() => made.close())
    return made
  }
  const write = { op: 'setData', path: '/s', data: '' } as const
  const ada = { username: 'ada', password: 'secret' }
  const outcome = (asking: Promise<unknown>) =>
    asking.then(
      () => 'answered',
      (error: { outcome?: string; code?: string }) => error.outcome ?? error.code ?? error,
    )
  const dropped = () => new Promise<void>((resolve) => setTimeout(resolve, 20))

  test('T1 counts from the write of the request, however late the answers are', async () => {
    const session = await client().open(TIMEOUT_MS, call())
    clock.block(1_000)
    const sentMs = clock.monotonicMs()
    member.answer = (packet) => {
      clock.block(100)
      return good(packet)
    }
    const prolonged = await session.prolong([write, { op: 'getEphemerals', path: '/' }], call())
    expect(prolonged?.since.monotonicMs).toBe(sentMs)
    expect(clock.monotonicMs()).toBe(sentMs + 300)
  })

  test('has credentials, watches and requests in its one write, and nothing comes between', async () => {
    const session = await client(ada).open(TIMEOUT_MS, call())
    await session.watch({ op: 'exists', path: '/a' }, () => {}, call())
    member.chunks.length = 0
    const others = [session.ask(write, call()), session.ask({ op: 'delete', path: '/a' }, call())]
    const prolonged = session.prolong([write, write], call())
    const late = session.ask({ op: 'exists', path: '/late' }, call())
    expect(await prolonged).toMatchObject({ timeoutMs: TIMEOUT_MS, replies: [{ ok: true }, { ok: true }] })
    await Promise.all([...others, late])
    expect(member.chunks).toEqual([
      [SET_DATA, DELETE, EXISTS],
      [CONNECT, AUTH, SET_WATCHES, SET_DATA, SET_DATA],
    ])
  })

  test('stops requests for less than two round trips at the median, also while others are in flight', async () => {
    const session = await client().open(TIMEOUT_MS, call())
    const arrived: Packet[] = []
    member.answer = (packet) => {
      arrived.push(packet)
      return null
    }
    /** One round trip: a request is asked, and all that has arrived by then is answered. Resolves to what that was. */
    const round = async () => {
      session.ask({ op: 'exists', path: '/a' }, call())
      await dropped()
      const packets = arrived.splice(0)
      for (const packet of packets) packet.socket.write(good(packet))
      await dropped()
      return packets.map(({ code }) => code)
    }
    const stops: number[] = []
    for (let times = 0; times < 3; times++) {
      await round()
      const before = session.ask({ op: 'exists', path: '/a' }, call())
      const prolonged = session.prolong([write], call())
      let stopped = 0
      const rounds: number[][] = []
      while (rounds.at(-1)?.includes(EXISTS) !== true || !rounds.flat().includes(CONNECT)) {
        rounds.push(await round())
        if (rounds.at(-1)?.includes(EXISTS) === false) stopped++
      }
      expect(await prolonged).not.toBeNull()
      await before
      stops.push(stopped)
    }
    expect(stops.toSorted()[1]).toBeLessThan(2)
    expect(Math.max(...stops)).toBeGreaterThan(0)
  })

  test('sets thousands of watches in parts that a server accepts', async () => {
    const session = await client().open(TIMEOUT_MS, call())
    const long = 'x'.repeat(1_000)
    for (let n = 0; n < 500; n++)
      await session.watch({ op: 'exists', path: `/${long}${n}` }, () => {}, call())
    member.packets.length = 0
    await session.prolong([], call())
    const parts = member.packets.filter(({ code }) => code === SET_WATCHES)
    expect(parts).toHaveLength(4)
    for (const { bytes } of parts) expect(bytes.length).toBeLessThan(130 * 2 ** 10)
    expect(parts.reduce((sum, { bytes }) => sum + bytes.readInt32BE(16), 0)).toBe(500)
  })

  test('a watch that the callback of another one stops is not told', async () => {
    const session = await client().open(TIMEOUT_MS, call())
    const told: string[] = []
    const second = () => void told.push('second')
    const first = () => {
      told.push('first')
      session.unwatch('/a', second)
    }
    for (const tell of [first, second]) await session.watch({ op: 'exists', path: '/a' }, tell, call())
    const [DELETED, CONNECTED] = [2, 3]
    member.packets.at(-1)?.socket.write(frame([-1, -1n, 0, DELETED, CONNECTED, '/a']))
    await dropped()
    expect(told).toEqual(['first'])
  })

  test('is tried once more at the first member: another connection may have had the session for a moment', async () => {
    const session = await client().open(TIMEOUT_MS, call())
    let refusals = 1
    member.answer = (packet) => {
      if (packet.code !== CONNECT || refusals-- <= 0) return good(packet)
      packet.socket.destroy()
      return null
    }
    const prolonged = session.prolong([write], call())
    await dropped()
    await clock.advance(50)
    expect(await prolonged).toMatchObject({ timeoutMs: TIMEOUT_MS })
  })

  test('comes before a request if nothing was heard for two thirds of its time: another process may have it', async () => {
    const session = await client().open(TIMEOUT_MS, call())
    for (const [silent, attachments] of [
      [0.6, 1],
      [0.7, 2],
    ] as const) {
      await clock.advance(silent * TIMEOUT_MS)
      expect(await session.ask(write, call())).toMatchObject({ ok: true })
      expect(member.codes.filter((code) => code === CONNECT)).toHaveLength(attachments)
    }
  })

  test('asks for the same time as before, with the newest state that was seen', async () => {
    const session = await client().open(5_000, call())
    await session.ask(write, call())
    await session.prolong([write], call())
    const asked = member.packets
      .filter(({ code }) => code === CONNECT)
      .map(({ bytes }) => ({
        zxid: bytes.readBigInt64BE(4),
        timeoutMs: bytes.readInt32BE(12),
        id: bytes.readBigInt64BE(16),
      }))
    expect(asked).toEqual([
      { zxid: 0n, timeoutMs: 5_000, id: 0n },
      { zxid: 9n, timeoutMs: 5_000, id: 42n },
    ])
  })

  test('never ends the session: no connection begins or ends with closeSession', async () => {
    const session = await client().open(TIMEOUT_MS, call())
    for (let count = 0; count < 3; count++) {
      member.reset()
      await dropped()
      expect(await session.ask(write, call())).toMatchObject({ ok: true })
    }
    expect(member.codes).not.toContain(CLOSE)
    await session.end(call())
    expect(member.codes).toContain(CLOSE)
  })

  test('tells another time-out, which members with other bounds may grant', async () => {
    const session = await client().open(TIMEOUT_MS, call())
    member.answer = (packet) => (packet.code === CONNECT ? connected(4_000, 42n) : good(packet))
    expect(await session.prolong([write], call())).toMatchObject({ timeoutMs: 4_000 })
    expect(session.timeoutMs).toBe(4_000)
  })

  test.each([
    ['no time-out', connected(0, 0n)],
    ['another session (ClickHouse #116690)', connected(TIMEOUT_MS, 43n)],
  ])('that is answered with %s means that the session has gone', async (_what, answer) => {
    const session = await client().open(TIMEOUT_MS, call())
    const told: string[] = []
    await session.watch({ op: 'exists', path: '/a' }, (what) => void told.push(what), call())
    member.answer = (packet) => (packet.code === CONNECT ? answer : good(packet))
    expect(await session.prolong([write], call())).toBeNull()
    expect(told).toEqual(['lost'])
    expect(await session.ask(write, call())).toMatchObject({ code: 'session-gone' })
  })

  test('whose credentials are not accepted says what to do', async () => {
    member.answer = (packet) => (packet.code === AUTH ? refused(packet, -115) : good(packet))
    const opening = client(ada).open(TIMEOUT_MS, call())
    await expect(opening).rejects.toMatchObject({ code: 'UNSUPPORTED' })
    await expect(opening).rejects.toThrow('does not accept the credentials')
  })

  describe('an answer', () => {
    const answeredWith = async (error: number): Promise<Session> => {
      const session = await client().open(TIMEOUT_MS, call())
      member.answer = (packet) => (packet.code === SET_DATA ? refused(packet, error) : good(packet))
      return session
    }

    test.each([
      ['session moved', -118, 'not-applied'],
      ['throttled', -127, 'not-applied'],
      ['quota', -125, 'not-applied'],
      ['no rights', -102, 'UNSUPPORTED'],
      ['an ACL that is not valid', -114, 'UNSUPPORTED'],
      ['unknown to the server', -6, 'UNSUPPORTED'],
      ['SASL is required', -124, 'UNSUPPORTED'],
      ['a failure of the server', -1, 'unknown'],
      ['a number that nobody knows', -77, 'unknown'],
    ])('%s (%i) is %s', async (_what, error, expected) => {
      const session = await answeredWith(error)
      expect(await outcome(session.ask(write, call()))).toBe(expected)
      expect(await session.ask({ op: 'exists', path: '/a' }, call())).toMatchObject({ ok: true })
    })

    test('SASL is required: it is refused by name, with what to use instead', async () => {
      const asked = (await answeredWith(-124)).ask(write, call())
      await expect(asked).rejects.toThrow(/requires SASL, which Holdfast does not speak\. Use a user name/)
    })

    test('after a session moved, requests go on over another connection', async () => {
      const session = await answeredWith(-118)
      const both = [session.ask(write, call()), session.ask(write, call())].map(outcome)
      expect(await Promise.all(both)).toEqual(['not-applied', 'unknown'])
      member.answer = good
      expect(await session.ask(write, call())).toMatchObject({ ok: true })
      expect(member.codes.filter((code) => code === CONNECT)).toHaveLength(2)
    })

    test('that comes out of turn says that the member is too old, and nothing of the others', async () => {
      const session = await client().open(TIMEOUT_MS, call())
      let first: Packet | undefined
      member.answer = (packet) => {
        if (packet.code === EXISTS) return refused(packet, -6)
        if (packet.code !== SET_DATA) return good(packet)
        first = packet
        return null
      }
      const writing = outcome(session.ask(write, call()))
      const reading = outcome(session.ask({ op: 'exists', path: '/a' }, call()))
      expect(await reading).toBe('UNSUPPORTED')
      if (first) first.socket.write(good(first))
      expect(await writing).toBe('answered')
    })

    test.each([
      ['is cut', ({ xid }: Packet) => frame([xid, 9n, 0, 7n])],
      ['answers another request', ({ xid }: Packet) => frame([xid + 1, 9n, 0, ...stat])],
      ['answers nothing', () => frame([77, 9n, 0])],
      ['is larger than any answer', () => Buffer.from([127, 0, 0, 0])],
      ['has a negative length', () => Buffer.from([255, 255, 255, 255])],
      ['is text', () => Buffer.from('HTTP/1.1 400 Bad Request')],
    ])(
      'T103 that %s is unknown at once, and the next request has another connection',
      async (_what, answer) => {
        const session = await client().open(TIMEOUT_MS, call())
        member.answer = (packet) => (packet.code === SET_DATA ? answer(packet) : good(packet))
        const asking = session.ask(write, call())
        expect(await outcome(asking)).toBe('unknown')
        await expect(asking).rejects.toThrow('not valid')
        expect(await session.ask({ op: 'exists', path: '/a' }, call())).toMatchObject({ ok: true })
        expect(member.codes.filter((code) => code === CONNECT)).toHaveLength(2)
      },
    )

    test.each([
      ['for long', 600, 2],
      ['for a moment', 400, 1],
    ])('that was awaited %s says something about the connection', async (_what, ms, connections) => {
      const session = await client().open(TIMEOUT_MS, call())
      member.answer = (packet) => (packet.code === SET_DATA ? null : good(packet))
      const given = new Cancellation()
      const settled = outcome(session.ask(write, given))
      await clock.advance(ms)
      given.cancel(new Error('its limit'))
      expect(await settled).toBe('unknown')
      await dropped()
      const read = outcome(session.ask({ op: 'exists', path: '/a' }, call()))
      await dropped()
      expect(member.codes.filter((code) => code === CONNECT)).toHaveLength(connections)
      session.drop()
      await read
    })

    test('that never comes is unknown after a while, also if the caller sets no limit (T96)', async () => {
      const session = await client().open(TIMEOUT_MS, call())
      member.answer = (packet) => (packet.code === SET_DATA ? null : good(packet))
      const asking = session.ask(write, call())
      const settled = outcome(asking)
      for (let passed = 0; passed < 21_000; passed += 500) await clock.advance(500)
      expect(await settled).toBe('unknown')
      await expect(asking).rejects.toThrow('within 20000 ms')
    })
  })

  test('a session of pings that no member attaches any more is replaced (all members were restored)', async () => {
    const made = client()
    const shared = await made.shared(call())
    await shared.ask({ op: 'exists', path: '/' }, call())
    expect(member.codes).toContain(PING)
    // They are behind what the session has seen, so they close its connections without a word.
    member.answer = (packet) => {
      if (packet.code !== CONNECT || packet.bytes.readBigInt64BE(16) === 0n) return good(packet)
      packet.socket.destroy()
      return null
    }
    member.reset()
    for (let passed = 0; passed < 60_000 && !shared.isGone; passed += 500) {
      await clock.advance(500)
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    expect(shared.isGone).toBe(true)
    const next = await made.shared(call())
    expect(next).not.toBe(shared)
  })
})
