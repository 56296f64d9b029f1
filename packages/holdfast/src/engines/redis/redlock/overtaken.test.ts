/** Nodes that are asked later than the others, or refuse a part of what they are asked. */
import assert from 'node:assert/strict'
import { redisCall, wanted } from 'holdfast-lab/servers'
import type { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, describe, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { type ClientLibrary, libraries } from '../../../../test/redis/clients.ts'
import { type Nodes, startNodes } from '../../../../test/redlock/nodes.ts'
import { call, eventually, hold, RedlockStage, request, ttlMs } from '../../../../test/redlock/stage.ts'
import { callWith } from '../../../base/aborting.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import { claimsScript } from './scripts.ts'

const nobody = [null, null, null, null, null]

describe.runIf(wanted('redis'))('redlock: out of step', () => {
  let nodes: Nodes
  beforeAll(async () => {
    nodes = await startNodes()
  })
  afterEach(() => nodes.endClients())
  afterAll(() => nodes?.stop())

  test.each(libraries)(
    'T15 a release that overtakes the request at a node that is just connecting again leaves nothing there ($name)',
    async (library) => {
      const stage = new RedlockStage(nodes)
      const backend = await stage.backend({ library })
      // Far longer than the test waits for anything.
      const session = await backend
        .openSession({ id: newSessionId(), ttlMs: 60_000, holder: 'ada' }, call())
        .then(namingGrants)
      await hold(session, 'warm')
      await eventually('all have voted', async () => !(await stage.values('warm')).includes(null))
      const proxy = stage.proxy(4)
      proxy.hold('up')
      proxy.reset()
      await eventually('it is cut off', () => proxy.connections === 0)
      await eventually('it is in its handshake', () => proxy.connections > 0)
      const held = await hold(session, 'x')
      assert.equal(await session.release(held, { keepForMs: 0 }, call()), 'released')
      proxy.heal()
      await hold(session, 'y')
      await eventually('it votes again', async () => (await stage.values('y', [4]))[0] !== null)
      const isLeft = async () => (await stage.values('x')).some((value) => value !== null)
      await eventually('nothing is left', async () => !(await isLeft()))
    },
  )

  test.each(libraries)(
    'T13 G11 a release whose answers were lost is unknown, not “not-held”, also if the clients send it again ($name)',
    async (library) => {
      const stage = new RedlockStage(nodes)
      const session = await stage.session('ada', { library })
      const held = await hold(session, 'x')
      for (const proxy of nodes.proxies) proxy.drop('down')
      const releasing = session.release(held, { keepForMs: 0 }, call())
      releasing.catch(() => {})
      await eventually('all have answered', () =>
        nodes.proxies.every((proxy) => proxy.swallowedBytes('down') > 0),
      )
      for (const proxy of nodes.proxies) proxy.heal()
      await assert.rejects(
        releasing,
        (error) => isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'unknown',
      )
      assert.deepEqual(await stage.values('x'), nobody)
    },
  )

  test.each([
    { lost: [0, 1, 2, 3, 4], outcome: 'unknown' },
    { lost: [0, 1, 2], outcome: 'unknown' },
    { lost: [0, 1], outcome: 1 },
  ])(
    'T78 G11 a force release that the clients sent twice does not say that it released nothing (answers lost: $lost)',
    async ({ lost, outcome }) => {
      const stage = new RedlockStage(nodes)
      await hold(await stage.session(), 'x')
      await nodes.flush()
      const operator = await stage.backend({ library: losingAnswersTo(claimsScript.sha1, lost) })
      const seen = await operator.inspect('x', call())
      assert(seen !== null)
      const ids = seen.holders.map(({ id }) => id)
      const forcing = operator
        .forceRelease('x', ids, 'stuck', callWith(undefined, { notAfterMs: seen.atMs + 60_000 }))
        .catch((error: unknown) => (isHoldfastError(error, 'BACKEND_UNAVAILABLE') ? error.outcome : error))
      await eventually('the answers are lost', () =>
        lost.every((index) => stage.proxy(index).swallowedBytes('down') > 0),
      )
      for (const proxy of nodes.proxies) proxy.heal()
      assert.equal(await forcing, outcome)
      assert.deepEqual(await stage.values('x'), nobody)
    },
  )

  test.each(['voted late', 'were mended'] as const)(
    'T84 late copies of an acquire at nodes that %s do not confirm the old grant',
    async (how) => {
      const stage = new RedlockStage(nodes)
      const backend = await stage.backend()
      const id = newSessionId()
      const session = await backend.openSession({ id, ttlMs, holder: 'ada' }, call())
      await nodes.flush()
      const [first, others, unnamed] = [0, [1, 2], [3, 4]]
      if (how === 'were mended') await stage.rival('x', unnamed)
      else for (const index of unnamed) stage.proxy(index).hold('down')
      const held = await hold(session, 'x')
      if (how === 'were mended') {
        await nodes.flush()
        await stage.remove('x', unnamed)
        await session.keepAlive({ held: [held], waiting: [] }, call())
      }
      for (const proxy of nodes.proxies) proxy.heal()
      await eventually('all have it', async () => !(await stage.values('x')).includes(null))
      await nodes.flush()
      const values = await stage.values('x')

      await stage.remove('x', [...others, ...unnamed])
      for (const index of unnamed) {
        const [, owner, details] = /^((?:[^|]+\|){3})\d+\|[^|]+\|(.*)$/s.exec(values[index] ?? '') ?? []
        assert(owner !== undefined && details !== undefined)
        const keys = [`holdfast:${stage.namespace}:session:${id}`, stage.key('x')]
        const args = ['', 'acquire', owner, ttlMs, 0, details, '']
        await redisCall(stage.server(index), 'EVAL', claimsScript.source, 2, ...keys, ...args)
      }
      assert.deepEqual(
        (await stage.values('x')).map((value) => value !== null),
        stage.all.map((index) => index === first || unnamed.includes(index)),
      )
      const kept = await session.keepAlive({ held: [held], waiting: [] }, call())
      assert(kept.kind === 'alive')
      assert.deepEqual(kept.lost, [{ attempt: held.attempt, reason: 'deleted' }])
    },
  )

  test('G6 T99 what is given up while the memory of the nodes is full is given up, also beside an acquire that they refuse', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    const [kept, released, closed, abandoned] = [
      await hold(session, 'kept'),
      await hold(session, 'released'),
      await hold(session, 'closed'),
      await hold(session, 'abandoned'),
    ]
    await nodes.call('CONFIG', 'SET', 'maxmemory', '1')
    try {
      const [refused, outcome] = await Promise.allSettled([
        session.tryAcquire(request('new'), call()),
        session.release(released, { keepForMs: 0 }, call()),
      ])
      assert(refused.status === 'rejected' && isHoldfastError(refused.reason, 'BACKEND_UNAVAILABLE'))
      assert.equal(refused.reason.outcome, 'not-applied')
      assert.match(refused.reason.message, /OOM/)
      assert.deepEqual(outcome, { status: 'fulfilled', value: 'released' })
      assert.equal(await session.release(closed, { keepForMs: 60_000 }, call()), 'released')
      await session.abandon(abandoned, call())
      const alive = await session.keepAlive({ held: [kept], waiting: [] }, call())
      assert(alive.kind === 'alive')
      assert.deepEqual(alive.lost, [])
    } finally {
      await nodes.call('CONFIG', 'SET', 'maxmemory', '0')
    }
    for (const name of ['released', 'abandoned'])
      await eventually(`${name} is free`, async () =>
        (await stage.values(name)).every((each) => each === null),
      )
    assert.deepEqual(await stage.values('new'), nobody)
    const again = await session
      .tryAcquire({ ...request('abandoned'), attempt: abandoned.attempt }, call())
      .then(
        ({ kind }) => kind,
        (error: Error) => error.message,
      )
    assert.match(again, /the attempt was abandoned/)
  })

  /** Clients to whom the answers of these nodes to the first call of a script are lost. */
  function losingAnswersTo(sha1: string, lost: readonly number[]): ClientLibrary {
    const [library] = libraries
    assert(library !== undefined)
    return {
      ...library,
      async open(url) {
        const opened = await library.open(url)
        const client = opened.client as Redis
        const proxy = lost.map((index) => nodes.proxies[index]).find((each) => url.endsWith(`:${each?.port}`))
        const evalsha = client.evalsha.bind(client) as (...args: unknown[]) => Promise<unknown>
        let isFirst = true
        client.evalsha = (script: string | Buffer, ...args: unknown[]) => {
          if (isFirst && script === sha1) {
            isFirst = false
            proxy?.drop('down')
          }
          return evalsha(script, ...args)
        }
        return opened
      },
    }
  }
})
