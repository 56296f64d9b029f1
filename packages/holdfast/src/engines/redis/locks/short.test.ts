/** Requests that are alone in their call: each check of the short scripts, and that everything else goes on to the whole script. */
import assert from 'node:assert/strict'
import {
  connectRedis,
  type Reply,
  type RespClient,
  type Server,
  startRedis,
  wanted,
} from 'holdfast-lab/servers'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { Rig } from '../../../../test/redis/rig.ts'
import { type Command, outcomeOf, type ScriptRun } from '../../../../test/redis/script-outcome.ts'
import type { GrantedClaim } from '../../../spi.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import { redisScript } from '../client/index.ts'
import { readReply } from './answers.ts'
import { Keys, TOKEN_KEY } from './keys.ts'
import { type Request, Requests, shortCallOf, wholeCallOf } from './requests.ts'
import { openLogScript } from './scripts/event-log.ts'
import { OpCode } from './scripts/op-codes.ts'
import type { TokenSource } from './scripts/prelude.ts'
import { requests as requestsSource } from './scripts/requests.ts'
import { shortScriptsFor } from './scripts/short.ts'

const LOCK = 'holdfast:default:{x}'
const release = { keepForMs: 0 }
const ttlMs = 60_000

describe.runIf(wanted('redis')).each(['clock-backed', undefined] as const)(
  'short scripts, fencing %s',
  (fencing) => {
    let server: Server
    let wire: RespClient
    beforeAll(async () => {
      server = await startRedis()
      wire = await connectRedis(server)
    })
    afterAll(async () => {
      wire?.close()
      await server?.stop()
    })
    beforeEach(() => wire.call('FLUSHALL'))

    async function sessionOn(rig: Rig) {
      const backend = await rig.backend(server.url, { backend: fencing === undefined ? {} : { fencing } })
      const session = await backend.openSession({ id: newSessionId(), ttlMs, holder: 'ada' }, call())
      const take = async (asked = request('x')): Promise<GrantedClaim> => {
        const result = await session.tryAcquire(asked, call())
        assert(result.kind === 'granted', result.kind)
        return { ...asked, grantId: result.grant.grantId }
      }
      return { session, take }
    }

    test('G7 T46 a release, or a renewal, of another attempt changes nothing', async () => {
      await using rig = new Rig()
      const { session, take } = await sessionOn(rig)
      const over = await take()
      await session.release(over, release, call())
      const held = await take()
      const value = await wire.call('GET', LOCK)
      assert.equal(await session.release(over, release, call()), 'not-held')
      await wire.call('PEXPIRE', LOCK, ttlMs / 2)
      const renewed = await session.keepAlive({ held: [over], waiting: [] }, call())
      assert(renewed.kind === 'alive' && renewed.lost[0]?.attempt === over.attempt)
      assert.equal(await wire.call('GET', LOCK), value)
      assert(Number(await wire.call('PTTL', LOCK)) <= ttlMs / 2)
      assert.equal(await session.release(held, release, call()), 'released')
    })

    test('T84 a late copy of an acquire gets another grant, and the first one releases and renews nothing', async () => {
      await using rig = new Rig()
      const { session, take } = await sessionOn(rig)
      const asked = request('x')
      const first = await take(asked)
      await wire.call('DEL', LOCK)
      const second = await take(asked)
      assert.notEqual(second.grantId, first.grantId)
      assert.equal(await session.release(first, release, call()), 'not-held')
      const renewed = await session.keepAlive({ held: [first], waiting: [] }, call())
      assert(renewed.kind === 'alive' && renewed.lost[0]?.attempt === first.attempt)
      assert.equal(await session.release(second, release, call()), 'released')
    })

    test('G2 a lease that was granted behind the clock is renewed and released, as is one with a note', async () => {
      await using rig = new Rig()
      const { session, take } = await sessionOn(rig)
      const ahead = String((Date.now() + 500) * 1_000)
      await wire.call('SET', 'holdfast:token', ahead)
      for (const asked of [request('x'), { ...request('x'), note: 'a | note' }]) {
        const held = await take(asked)
        await wire.call('PEXPIRE', LOCK, ttlMs / 2)
        const renewed = await session.keepAlive({ held: [held], waiting: [] }, call())
        assert(renewed.kind === 'alive' && renewed.lost.length === 0)
        assert(Number(await wire.call('PTTL', LOCK)) > ttlMs / 2)
        assert.equal(await session.release(held, release, call()), 'released')
        if (fencing !== undefined) assert(BigInt(held.grantId) > BigInt(ahead))
      }
      assert.equal(await wire.call('EXISTS', LOCK), 0)
    })

    test('T108 a pair alone runs the commands of the lock, and with tokens one more', async () => {
      await using rig = new Rig()
      const { session, take } = await sessionOn(rig)
      const pair = async () => session.release(await take(), release, call())
      await pair()
      await wire.call('CONFIG', 'RESETSTAT')
      await pair()
      const report = String(await wire.call('INFO', 'commandstats'))
      const counts = [...report.matchAll(/^cmdstat_(?!config|info)([^:|]+)[^:]*:calls=(\d+)/gm)]
      const set = fencing === undefined ? 1 : 2
      assert.deepEqual(Object.fromEntries(counts.map(([, name, calls]) => [name, Number(calls)])), {
        ...{ evalsha: 2, exists: 2, time: 1, set, get: 1, del: 1 },
      })
    })
  },
)

/** The answers, and whether the clock was found to be behind. */
function read(reply: Reply): unknown {
  const { answers, note } = readReply(reply)
  return [...answers.map((answer) => (answer instanceof Error ? answer.message : answer)), note !== undefined]
}

/** Without the common requests in the whole script, too: the library alone. */
const libraryScript = redisScript(`local is_untried = false${requestsSource}`)

describe.runIf(wanted('redis')).each(['0', '1', '2', '3'] as const satisfies TokenSource[])(
  'short scripts, tokens from source %s',
  (source) => {
    let server: Server
    let wire: RespClient
    beforeAll(async () => {
      server = await startRedis()
      wire = await connectRedis(server)
    })
    afterAll(async () => {
      wire?.close()
      await server?.stop()
    })

    const isFenced = source === '1' || source === '2'
    const isCluster = source === '2' || source === '3'
    const keys = new Keys({ namespace: 'default', isCluster })
    const watch = isCluster ? '' : keys.watch
    const marks = source === '1' ? [TOKEN_KEY] : []
    const mark = isCluster ? `${LOCK}:t` : TOKEN_KEY
    const sessionOf = (id: string, holder: string) =>
      new Requests({ keys, channel: 'grants', session: { id: `${id}.secret`, ttlMs, holder } })
    const [mine, theirs] = [sessionOf('mine', 'ada'), sessionOf('theirs', 'bob')]

    const asked = { ...request('x'), attempt: 'attempt' }
    const grantId = isFenced ? '1000000000000002' : '1000000000.000002'
    const granted = { ...asked, grantId }
    const { who } = mine.claim(asked)
    /** The value of the lock key of an exclusive holder. */
    const value = (rest: { delayMs?: number; shown?: string; grant?: string; by?: string } = {}) => {
      const { delayMs = 0, shown = '["ada"]', grant = grantId, by = who } = rest
      const last = isFenced ? `${grant}|1000000000.000001` : `|${grant}`
      return `hf1|${by}|${delayMs}|${ttlMs}|${shown}|${last}`
    }
    const held = (rest: Parameters<typeof value>[0] = {}, leftMs = 20_000): Command => [
      'SET',
      LOCK,
      value(rest),
      'PX',
      String(leftMs),
    ]
    const whole = (...each: Request[]): ScriptRun => {
      const { script, keys, args } = wholeCallOf(each, source + watch, marks)
      return { source: script.source, keys, args, read }
    }
    const ran = (...each: Request[]): Command => {
      const { source, keys, args } = whole(...each)
      return ['EVAL', source, String(keys.length), ...keys, ...args]
    }
    const third = { ...request('x'), attempt: 'third' }
    const queued = ran(theirs.acquire(third, OpCode.enqueue))
    const other = (mode: 'exclusive' | 'shared') =>
      ran(theirs.acquire({ ...asked, attempt: 'other', mode }, OpCode.tryAcquire))
    const watching: Command[] = isCluster
      ? []
      : [['EVAL', openLogScript.source, '1', watch, 'the-log', '60000']]
    const ahead = String((Date.now() + 100_000) * 1_000)

    const states: Readonly<Record<string, readonly Command[]>> = {
      'nothing is held': [],
      'it is held by this grant': [held()],
      'it is held by another grant of this attempt': [held({ grant: grantId.replace(/2$/, '3') })],
      'it is held with a note': [held({ shown: '["ada","a | note"]' })],
      'it is held with a lock-delay': [held({ delayMs: 20_000 }, 80_000)],
      'its lock-delay runs': [held({ delayMs: 60_000 })],
      'another attempt holds it': [held({ by: `other|${who.split('|')[1]}` })],
      'another session holds it': [other('exclusive')],
      'others share it': [other('shared')],
      'this attempt and another share it': [
        other('shared'),
        ran(mine.acquire({ ...asked, mode: 'shared' }, OpCode.tryAcquire)),
      ],
      'a foreign client holds it': [['SET', LOCK, 'foreign', 'PX', '20000']],
      'the lock has another type': [['HSET', LOCK, 'a', 'b']],
      'it is kept closed': [['SET', LOCK, 'hf1c', 'PX', '20000']],
      'it is held for ever': [['SET', LOCK, value()]],
      'it is held and waited for': [held(), queued],
      'it is waited for, and its holder is gone': [held(), queued, ['DEL', LOCK]],
      'this attempt waits': [other('exclusive'), ran(mine.acquire(asked, OpCode.enqueue))],
      'it has data': [['HSET', `${LOCK}:s`, 'd', 'data']],
      'it is held and has data': [held(), ['HSET', `${LOCK}:s`, 'd', 'data']],
      'the state beside it has another type': [['SET', `${LOCK}:s`, 'text']],
      'it is held, and the state has another type': [held(), ['SET', `${LOCK}:s`, 'text']],
      'the attempt was abandoned': [['SET', `${LOCK}:x:${who}`, 'abandoned', 'PX', '60000']],
      'an operator has ended it': [
        ['SET', `${LOCK}:x:${who}`, 'force-released', 'PX', '60000'],
        ['SET', `${LOCK}:x:${who}:why`, 'stuck', 'PX', '60000'],
      ],
      'it is watched': watching,
      'it is held and watched': [...watching, held()],
      'the last token is ahead of the clock': [['SET', mark, ahead]],
      'the last token is the largest': [['SET', mark, '4503599627370495']],
      'the last token is no number': [['SET', mark, 'text']],
      'the last token is no number, and as long as one': [['SET', mark, '10000000000000x2']],
      'the last token has another type': [['HSET', mark, 'a', 'b']],
      'the memory is full': [['CONFIG', 'SET', 'maxmemory', '1']],
      'it is held, and the memory is full': [held(), ['CONFIG', 'SET', 'maxmemory', '1']],
      'the server is a replica': [['REPLICAOF', '127.0.0.1', '1']],
      'it is held, and the server is a replica': [held(), ['REPLICAOF', '127.0.0.1', '1']],
    }
    const short = shortScriptsFor(source)

    describe.each(Object.entries(states))('T108 when %s', (_, prepare) => {
      test.each([
        ['an acquire that waits', mine.acquire(asked, OpCode.enqueue)],
        ['an acquire', mine.acquire(asked, OpCode.tryAcquire)],
        ['a renewal', mine.renew(granted)],
        ['a release', mine.release(granted, 0)],
      ])('%s', async (_, alone) => {
        const one = shortCallOf(alone, watch)
        assert(one !== undefined)
        const expected = await outcomeOf(wire, whole(alone), prepare)
        const runs = {
          short: { source: short[one.script].source, keys: [one.key, ...marks], args: one.args, read },
          library: { ...whole(alone), source: libraryScript.source },
        }
        for (const [name, run] of Object.entries(runs))
          assert.equal(await outcomeOf(wire, run, prepare), expected, name)
      })
    })
  },
)
