/** Watching: what only this engine can get wrong. The rest is shown by the conformance suite. */
import assert from 'node:assert/strict'
import { type Clock, createClock } from 'holdfast-lab/faults'
import {
  connectRedis,
  type RespClient,
  type Server,
  startRedis,
  startRedisCluster,
  wanted,
} from 'holdfast-lab/servers'
import { afterAll, beforeAll, beforeEach, describe, onTestFinished, test } from 'vitest'
import { libraries, libraryNamed } from '../../../../test/redis/clients.ts'
import { Rig, type RigOptions, until } from '../../../../test/redis/rig.ts'
import { callWith } from '../../../base/aborting.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { systemRandom } from '../../../base/ids.ts'
import { createLocker } from '../../../locker/locker.ts'
import type { AcquireRequest, Backend, BackendSession, GrantedClaim, WatchEvent } from '../../../spi.ts'
import { call, request, secretOf, shared } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import { createFakeClock, type FakeClock } from '../../../testing/fake-clock.ts'
import { openRedis } from './assemble.ts'

const release = { keepForMs: 0 }
/** Long enough for every test, and short enough to be waited for. */
const [LONG_MS, SHORT_MS] = [60_000, 300]
const WATCH = 'holdfast:default:watch'

function sessionOn(backend: Backend, ttlMs = LONG_MS): Promise<BackendSession> {
  return backend.openSession({ id: systemRandom.id() + systemRandom.id(), ttlMs, holder: 'ada' }, call())
}

async function take(session: BackendSession, asked: AcquireRequest): Promise<GrantedClaim> {
  const answer = await session.tryAcquire(asked, call())
  assert(answer.kind === 'granted', `${asked.name} is ${answer.kind}`)
  return answer.grant
}

/** Reads events in the background, until it is told to stop. */
function watching(backend: Backend, cursor?: string, prefix = '') {
  const events: WatchEvent[] = []
  const controller = new AbortController()
  onTestFinished(() => controller.abort())
  const options = cursor === undefined ? {} : { cursor }
  let failure: unknown
  const reading = (async () => {
    const all = backend.watch?.(prefix, options, callWith(controller.signal)) ?? []
    for await (const event of all) events.push(event)
  })().catch((error: unknown) => {
    failure = error
  })
  const story = () => events.map((event) => (event.kind === 'gap' ? 'gap' : `${event.kind} ${event.name}`))
  return {
    events,
    story,
    failure: () => failure,
    cursor: () => events.at(-1)?.cursor ?? '',
    async sees(...expected: string[]) {
      await until(`${expected}`, () => story().length >= expected.length).catch(() => {})
      assert.deepEqual(story(), expected)
    },
    async stop() {
      controller.abort()
      await reading
    },
  }
}

describe.runIf(wanted('redis'))('watching on one server', () => {
  let server: Server
  let wire: RespClient
  beforeAll(async () => {
    server = await startRedis()
    wire = await connectRedis(server)
  })
  beforeEach(() => wire.call('FLUSHALL'))
  afterAll(async () => {
    wire?.close()
    await server?.stop()
  })

  const isWatched = async () => (await wire.call('EXISTS', WATCH)) === 1

  /** One that has seen that it watches. */
  async function watchingNow(backend: Backend, cursor?: string) {
    const watcher = watching(backend, cursor)
    await until('it is watched', isWatched)
    return watcher
  }

  /** The commands that scripts and clients ran meanwhile. */
  async function commandsDuring(work: () => Promise<unknown>): Promise<Record<string, number>> {
    await wire.call('CONFIG', 'RESETSTAT')
    await work()
    const report = String(await wire.call('INFO', 'commandstats'))
    const counts: Record<string, number> = {}
    for (const [, command = '', calls] of report.matchAll(/^cmdstat_([^:|]+)[^:]*:calls=(\d+)/gm))
      if (!/^(config|info)$/.test(command)) counts[command] = Number(calls)
    return counts
  }

  test('T82 without a watcher an acquire and a release run the commands of the lock alone', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const session = await sessionOn(backend)
    const pair = async () => session.release(await take(session, request('x')), release, call())
    await pair()
    assert.deepEqual(await commandsDuring(pair), { evalsha: 2, exists: 2, time: 1, set: 1, get: 1, del: 1 })
    const watcher = await watchingNow(backend)
    await pair()
    await watcher.sees('acquired x', 'released x')
    await watcher.stop()
    await wire.call('DEL', WATCH)
    await pair()
    assert.deepEqual(await commandsDuring(pair), { evalsha: 2, exists: 2, time: 1, set: 1, get: 1, del: 1 })
  })

  test('T82 the cost of a watch follows the changes, not the names in use', async () => {
    const costWith = async (names: number) => {
      await wire.call('FLUSHALL')
      await using rig = new Rig()
      const session = await sessionOn(await rig.backend(server.url))
      for (let number = 0; number < names; number++) await take(session, request(`name ${number}`))
      const watcher = await watchingNow(await rig.backend(server.url))
      await until(
        'the holders are known',
        async () => (await wire.call('HGET', `${WATCH}:held`, '')) === 'all',
      )
      const commands = await commandsDuring(async () => {
        for (let round = 0; round < 10; round++)
          await session.release(await take(session, request('passing')), release, call())
        await until('the events', () => watcher.events.length === 20)
      })
      // How many messages wake one reading depends on how fast they come. On a slow machine the log is prolonged meanwhile.
      const { evalsha = 0, get = 0, xrange = 0, ...changes } = commands
      assert(evalsha - xrange <= 25 && xrange <= 30 && get <= 80, JSON.stringify(commands))
      return changes
    }
    assert.deepEqual(await costWith(10), await costWith(1_000))
  })

  test('everything that watching writes ends by itself, and no key or event has a secret', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const session = await sessionOn(backend)
    const watcher = await watchingNow(backend)
    const held = await take(session, request('x'))
    await watcher.sees('acquired x')
    await watcher.stop()
    const keys = (await wire.call('KEYS', `${WATCH}*`)) as string[]
    assert.deepEqual(keys.sort(), [WATCH, `${WATCH}:due`, `${WATCH}:held`, `${WATCH}:log`])
    for (const key of keys) assert(Number(await wire.call('PTTL', key)) > 0, key)
    const kept = JSON.stringify([
      await wire.call('XRANGE', `${WATCH}:log`, '-', '+'),
      await wire.call('HGETALL', `${WATCH}:held`),
    ])
    for (const secret of [secretOf(held.attempt), session.id]) assert(!kept.includes(secret))
  })

  test.each(libraries)(
    'reads on from where it was when all connections are lost ($name)',
    async (library) => {
      await using rig = new Rig()
      const session = await sessionOn(await rig.backend(server.url))
      const watcher = await watchingNow(await rig.backend(server.url, { library }))
      await take(session, request('a'))
      await watcher.sees('acquired a')
      await wire.call('CLIENT', 'KILL', 'SKIPME', 'yes', 'TYPE', 'normal')
      await wire.call('CLIENT', 'KILL', 'SKIPME', 'yes', 'TYPE', 'pubsub')
      const again = await sessionOn(await rig.backend(server.url))
      await take(again, request('b'))
      await watcher.sees('acquired a', 'acquired b')
      assert.equal(watcher.failure(), undefined)
    },
  )

  test('a lost message costs time, not an event', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const watcher = await watchingNow(backend)
    const log = `["acquired","${systemRandom.id()}","","holdfast:default:{x}","0|1000|[\\"eve\\"]",1]`
    await wire.call('XADD', `${WATCH}:log`, '*', 'e', log)
    const session = await sessionOn(backend)
    await take(session, request('y'))
    await watcher.sees('acquired x', 'acquired y')
  })

  test.each([
    ['forgotten', 'DEL', WATCH],
    ['deleted', 'DEL', `${WATCH}:log`],
    ['emptied', 'XTRIM', `${WATCH}:log`, 'MAXLEN', '0'],
    ['lost with everything else', 'FLUSHALL'],
  ])('a log that was %s is a gap, and then it goes on', async (how, ...command) => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const first = await watchingNow(backend)
    await take(await sessionOn(backend), request('a'))
    await first.sees('acquired a')
    await first.stop()
    await wire.call(...(command as [string]))
    const later = await rig.backend(server.url)
    const watcher = watching(later, first.cursor())
    const holders = how.startsWith('lost') ? [] : ['acquired a']
    await watcher.sees('gap', ...holders)
    await take(await sessionOn(later), request('b'))
    await watcher.sees('gap', ...holders, 'acquired b')
  })

  test('a log that no longer reaches back to the cursor is a gap', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const session = await sessionOn(backend)
    const first = await watchingNow(backend)
    await take(session, request('a'))
    await first.sees('acquired a')
    await first.stop()
    for (const name of ['b', 'c']) await take(session, request(name))
    const inTime = watching(backend, first.cursor())
    await inTime.sees('acquired b', 'acquired c')
    await inTime.stop()
    await wire.call('XTRIM', `${WATCH}:log`, 'MAXLEN', '1')
    const tooLate = watching(backend, first.cursor())
    await until('the gap, and the current holders', () => tooLate.events.length === 4)
    assert.deepEqual(tooLate.story().sort(), ['acquired a', 'acquired b', 'acquired c', 'gap'])
    const atTheEnd = watching(backend, inTime.cursor())
    await take(session, request('d'))
    await atTheEnd.sees('acquired d')
  })

  test('a log that is gone while it is watched is a gap', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const session = await sessionOn(backend)
    const watcher = await watchingNow(backend)
    await take(session, request('a'))
    await watcher.sees('acquired a')
    await wire.call('DEL', `${WATCH}:log`)
    await take(session, request('b'))
    await until('the gap', () => watcher.story().includes('gap'))
    await take(session, request('c'))
    await until('the next event', () => watcher.story().at(-1) === 'acquired c')
  })

  test('T82 an event that does not fit into the memory is a gap', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const session = await sessionOn(backend)
    const watcher = await watchingNow(backend)
    const held = await take(session, request('a'))
    await watcher.sees('acquired a')
    await wire.call('CONFIG', 'SET', 'maxmemory', '1')
    try {
      assert.equal(await session.release(held, release, call()), 'released')
    } finally {
      await wire.call('CONFIG', 'SET', 'maxmemory', '0')
    }
    await until('the gap', () => watcher.story().length > 1)
    await take(session, request('b'))
    await until('b', () => watcher.story().at(-1) === 'acquired b')
    assert.equal(watcher.story()[1], 'gap')
  })

  test.each([
    ['an exclusive holder', [request('x')]],
    ['several holders', [shared('x'), shared('x')]],
    ['one with a lock-delay', [request('x', { lockDelayMs: LONG_MS })]],
  ])('%s that expires is told, also if it held before there was a watcher', async (_, asked) => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const session = await sessionOn(backend, 5 * SHORT_MS)
    for (const each of asked) await take(session, each)
    const watcher = await watchingNow(backend)
    await watcher.sees(...asked.map(() => 'expired x'))
  })

  test('a watcher that comes back with a cursor is told of an expiry that no call has noticed', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const session = await sessionOn(backend, SHORT_MS)
    const first = await watchingNow(backend)
    await take(session, request('x'))
    await take(session, shared('y'))
    await first.sees('acquired x', 'acquired y')
    await first.stop()
    await until(
      'x is gone',
      async () => (await wire.call('EXISTS', 'holdfast:default:{x}', 'holdfast:default:{y}')) === 0,
    )
    const second = watching(await rig.backend(server.url), first.cursor())
    await until('both', () => second.events.length === 2)
    assert.deepEqual(second.story().sort(), ['expired x', 'expired y'])
  })

  test('an expiry is told before the next grant, a deletion as an end, and a renewed holder is left alone', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const watcher = await watchingNow(backend)
    const [brief, lasting] = [await sessionOn(backend, 50), await sessionOn(backend, SHORT_MS)]
    await take(brief, request('x'))
    const renewed = await take(lasting, request('renewed'))
    const session = await sessionOn(backend)
    const successor = request('x')
    await until('the successor', async () => {
      await lasting.keepAlive({ held: [renewed], waiting: [] }, call())
      return (await session.tryAcquire(successor, call())).kind === 'granted'
    })
    await wire.call('DEL', 'holdfast:default:{x}')
    await take(session, request('x'))
    await watcher.sees('acquired x', 'acquired renewed', 'expired x', 'acquired x', 'ended x', 'acquired x')
    for (let round = 0; round < 20; round++) {
      await lasting.keepAlive({ held: [renewed], waiting: [] }, call())
      await new Promise((resolve) => setTimeout(resolve, SHORT_MS / 10))
    }
    await lasting.release(renewed, release, call())
    await until('the release', () => watcher.story().at(-1) === 'released renewed')
    assert.equal(watcher.events.length, 7)
  })

  test('a waiter that dies is told to have given up', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const [session, mortal] = [await sessionOn(backend), await sessionOn(backend, SHORT_MS)]
    const held = await take(session, request('x'))
    const watcher = await watchingNow(backend)
    const waiting = enqueued(mortal, request('x'), call()).catch(() => {})
    await watcher.sees('waiting x')
    await new Promise((resolve) => setTimeout(resolve, 2 * SHORT_MS))
    await session.release(held, release, call())
    await watcher.sees('waiting x', 'released x', 'gave-up x')
    await backend[Symbol.asyncDispose]()
    await waiting
  })

  test('a prefix of the client, and the documented rights, are enough', async () => {
    await wire.call(
      'ACL',
      'SETUSER',
      'watcher',
      'on',
      '>p',
      'resetkeys',
      '~app:holdfast:*',
      'resetchannels',
      '&holdfast:*',
    )
    await wire.call(
      'ACL',
      'SETUSER',
      'watcher',
      'nocommands',
      '+@scripting',
      '+@pubsub',
      '+@read',
      '+@write',
      '+@connection',
      '+time',
    )
    const url = server.url.replace('redis://', 'redis://watcher:p@')
    await using rig = new Rig()
    const options: RigOptions = { client: { keyPrefix: 'app:' } }
    const backend = await rig.backend(url, options)
    const session = await sessionOn(backend)
    const watcher = watching(backend)
    await until('it is watched', async () => (await wire.call('EXISTS', `app:${WATCH}`)) === 1)
    await take(session, request('x'))
    await watcher.sees('acquired x')
    const elsewhere = await sessionOn(await rig.backend(server.url))
    await take(elsewhere, request('of another prefix'))
    await take(session, request('y'))
    await watcher.sees('acquired x', 'acquired y')
  })

  test.each([
    ['reading the log', '-xrange'],
    ['streams', '-xadd', '-xrange', '-xrevrange', '-xlen'],
    ['finding the names that are due', '-zrangebyscore'],
    ['looking at a name that is due', '-pttl'],
    ['listing the names', '-scan'],
    ['knowing whether there is a log', '-exists'],
    ['publishing', '-publish'],
  ])('G12 a user to whom %s is denied is told so, with the right to add', async (_, ...rules) => {
    await wire.call('ACL', 'SETUSER', 'denied', 'reset', 'on', '>p', '~*', '&*', '+@all', ...rules)
    await using rig = new Rig()
    await take(await sessionOn(await rig.backend(server.url)), request('x'))
    const watcher = watching(await rig.backend(server.url.replace('redis://', 'redis://denied:p@')))
    await until('the refusal', () => watcher.failure() !== undefined)
    const failure = watcher.failure()
    assert(isHoldfastError(failure, 'UNSUPPORTED'), String(failure))
    assert.match(failure.message, /ACL SETUSER <user> \+/)
    assert.deepEqual(watcher.story(), [])
  })

  test('G12 a right that is taken away while it is watched ends the watch', async () => {
    await wire.call('ACL', 'SETUSER', 'denied', 'reset', 'on', '>p', '~*', '&*', '+@all')
    await using rig = new Rig()
    const session = await sessionOn(await rig.backend(server.url))
    const watcher = await watchingNow(await rig.backend(server.url.replace('redis://', 'redis://denied:p@')))
    await take(session, request('x'))
    await watcher.sees('acquired x')
    await wire.call('ACL', 'SETUSER', 'denied', '-xrange')
    await take(session, request('y'))
    await until('the refusal', () => watcher.failure() !== undefined)
    assert(isHoldfastError(watcher.failure(), 'UNSUPPORTED'))
  })

  test('G12 where `key` chooses the keys, watching is refused', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url, { backend: { key: (name) => `lock:${name}` } })
    const watcher = watching(backend)
    await until('the refusal', () => watcher.failure() !== undefined)
    assert(isHoldfastError(watcher.failure(), 'UNSUPPORTED'))
    await take(await sessionOn(backend), request('x'))
  })
})

describe.runIf(wanted('redis'))('watching while time stands still', () => {
  const time: Clock = createClock()
  let server: Server
  let wire: RespClient
  beforeAll(async () => {
    server = await startRedis({ clock: time })
    time.freeze()
    wire = await connectRedis(server)
  })
  beforeEach(() => wire.call('FLUSHALL'))
  afterAll(async () => {
    wire?.close()
    await server?.stop()
  })

  const TTL_MS = 1_000
  const hasAllHolders = async () => (await wire.call('HGET', `${WATCH}:held`, '')) === 'all'
  const callsOf = async (command: string) => {
    const report = String(await wire.call('INFO', 'commandstats'))
    return Number(new RegExp(`^cmdstat_${command}:calls=(\\d+)`, 'm').exec(report)?.[1] ?? 0)
  }

  /** Moves the process's clock in steps that are shorter than any pause, until the server has looked at a name. */
  const untilALook = (clock: FakeClock) =>
    until('a look', async () => {
      await clock.advance(20)
      return (await callsOf('hmget')) > 0
    })

  /** Takes many names and one more, which sorts behind them. Its holder dies, and the others are renewed. */
  async function oneDiesAmong(count: number) {
    const rig = new Rig()
    onTestFinished(() => rig[Symbol.asyncDispose]())
    const clock = createFakeClock()
    const holding = await rig.backend(server.url)
    const [living, mortal] = [await sessionOn(holding, TTL_MS), await sessionOn(holding, TTL_MS)]
    const held = await Promise.all(
      Array.from({ length: count }, (_, number) => take(living, request(`name ${number}`))),
    )
    await take(mortal, request('~'))
    const watcher = watching(await rig.backend(server.url, { backend: { clock } }))
    await until('all holders are known', hasAllHolders)
    time.step(0.9 * TTL_MS)
    await living.keepAlive({ held, waiting: [] }, call())
    time.step(0.2 * TTL_MS)
    await wire.call('CONFIG', 'RESETSTAT')
    await untilALook(clock)
    return { watcher, clock }
  }

  test('T82 names that are due together are looked at without a pause, so many living ones do not delay an expiry', async () => {
    const { watcher } = await oneDiesAmong(1_000)
    await watcher.sees('expired ~')
    assert.equal(await callsOf('hmget'), 1_001, 'each name is looked at once')
    assert((await callsOf('zrangebyscore')) >= 5, 'in several calls')
  })

  test('T82 a renewed name is looked at again when the rest of its time is up, and not before', async () => {
    const { watcher, clock } = await oneDiesAmong(10)
    await watcher.sees('expired ~')
    await wire.call('CONFIG', 'RESETSTAT')
    time.step(0.7 * TTL_MS)
    for (let step = 0; step < 20; step++) await clock.advance(0.1 * TTL_MS)
    assert.equal(await callsOf('hmget'), 0)
    time.step(0.1 * TTL_MS + 1)
    await untilALook(clock)
    await until('the others', () => watcher.events.length === 11)
    assert.equal(await callsOf('hmget'), 10)
  })

  test('T109 after the clock was set back, holders of before are told after a gap all the same', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const session = await sessionOn(backend)
    // More than one page of the list. The later ones are looked at after the end of the log was read.
    const old = Array.from({ length: 3_000 }, (_, number) => `old ${number}`)
    await Promise.all(old.map((name) => take(session, request(name))))
    time.step(-10_000)
    onTestFinished(() => time.step(10_000))
    const controller = new AbortController()
    onTestFinished(() => controller.abort())
    const watched = backend.watch?.('', { cursor: 'of another log' }, callWith(controller.signal)) ?? []
    const told = new Set<string>()
    for await (const event of watched) {
      if (event.kind !== 'gap') told.add(event.name)
      else {
        time.step(10)
        await take(session, request('new'))
        time.step(10)
      }
      // It is newer than the picture, so it is told after it.
      if (told.has('new')) break
    }
    assert.equal(told.size, old.length + 1)
  })

  test.each([
    ['after the end of the log was read', 10, 10],
    ['T109 in the same millisecond as the end of the log', 0, 10],
    ['T109 in the same millisecond as the look at it', 10, 0],
    ['T109 in one millisecond with both', 0, 0],
  ])('after a gap, a holder that is granted %s is told once', async (_, beforeMs, afterMs) => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const session = await sessionOn(backend)
    // More than one page of the list.
    await Promise.all(Array.from({ length: 3_000 }, (_, number) => take(session, request(`old ${number}`))))
    time.step(10)
    const controller = new AbortController()
    onTestFinished(() => controller.abort())
    const watched = backend.watch?.('', { cursor: 'of another log' }, callWith(controller.signal)) ?? []
    const told = new Map<string, number>()
    let isLastTaken = false
    const afterPicture: WatchEvent[] = []
    for await (const event of watched) {
      if (!event.cursor.endsWith(':gap')) afterPicture.push(event)
      if (event.kind !== 'gap') told.set(event.name, (told.get(event.name) ?? 0) + 1)
      else {
        time.step(beforeMs)
        await Promise.all(Array.from({ length: 50 }, (_, number) => take(session, request(`new ${number}`))))
        time.step(afterMs)
      }
      if (event.kind !== 'gap' && event.name === 'last') break
      // Taken when all others have been told: whatever is told twice comes before it.
      if (told.size === 3_050 && !isLastTaken) {
        isLastTaken = true
        await take(session, request('last'))
      }
    }
    assert.equal(told.size, 3_051)
    assert.deepEqual(
      [...told].filter(([, times]) => times > 1),
      [],
    )
    // One that comes back with the end of the picture is told the same.
    const [end, ...rest] = afterPicture
    const again = watching(backend, end?.cursor)
    await again.sees(...rest.map((event) => `acquired ${event.kind === 'gap' ? '' : event.name}`))
  })

  test('names whose next time cannot be stored are looked at again after a pause', async () => {
    await wire.call('ACL', 'SETUSER', 'poor', 'on', '>p', '~*', '&*', '+@all', '-zadd')
    const clock = createFakeClock()
    await using rig = new Rig()
    const url = server.url.replace('redis://', 'redis://poor:p@')
    const session = await sessionOn(await rig.backend(server.url), TTL_MS)
    const opener = watching(await rig.backend(server.url))
    await until('all holders are known', hasAllHolders)
    await take(session, request('x'))
    await opener.sees('acquired x')
    await opener.stop()
    time.step(0.9 * TTL_MS)
    await wire.call('PEXPIRE', 'holdfast:default:{x}', TTL_MS)
    time.step(0.2 * TTL_MS)
    await wire.call('CONFIG', 'RESETSTAT')
    watching(await rig.backend(url, { backend: { clock } }))
    await untilALook(clock)
    for (let turn = 0; turn < 50; turn++) await wire.call('PING')
    assert.equal(await callsOf('hmget'), 1)
  })
})

describe.runIf(wanted('redis'))('watching on a Cluster', () => {
  test('no backend has a watch there, and a locker compares lists', async () => {
    const cluster = await startRedisCluster()
    const { client, close } = await libraryNamed('ioredis 6').openCluster(
      cluster.members.map(({ url }) => url),
    )
    try {
      const backend = openRedis({ client })
      assert.equal(backend.watch, undefined)
      await using locker = createLocker(backend)
      const controller = new AbortController()
      onTestFinished(() => controller.abort())
      const names = ['a', 'b', 'c']
      for (const name of names) await locker.acquire(name)
      const story: string[] = []
      const options = { cursor: 'of a server', signal: controller.signal }
      for await (const event of locker.watch('', options)) {
        story.push(event.kind === 'gap' ? 'gap' : `${event.kind} ${event.name}`)
        if (story.length > names.length) break
      }
      assert.deepEqual(story.sort(), [...names.map((name) => `acquired ${name}`), 'gap'])
    } finally {
      close()
      await cluster.stop()
    }
  })
})
