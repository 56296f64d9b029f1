/** A session on three members that fail: what it loses, what it carries over, and what a re-attachment proves. */
import { waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { ClientRig, type Door } from '../../../../test/zookeeper/client-rig.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { elapsedMs, elapsedUntil, type Instant, instantOf, sleep, systemClock } from '../../../base/clock.ts'
import { call } from '../../../testing/conformance/requests.ts'
import type { Session, WatchTold } from './index.ts'

const LONG_MS = 20_000

describe.runIf(wanted('zookeeper'))('a session of ZooKeeper', () => {
  let rig: ClientRig
  let path = ''
  let paths = 0
  beforeAll(async () => {
    rig = await ClientRig.start()
  })
  afterEach(() => rig.clear())
  afterAll(() => rig[Symbol.asyncDispose]())

  /** A session with a node of its own, at the first of these members, or at another if that fails. */
  async function opened(doors: readonly Door[] = rig.doors, timeoutMs = LONG_MS): Promise<Session> {
    path = `/session/${++paths}`
    await rig.client().makePath(path, call())
    const session = await rig.client(doors).open(timeoutMs, call())
    expect(await session.ask({ op: 'create', path: `${path}/s`, mode: 'ephemeral' }, call())).toMatchObject({
      ok: true,
    })
    return session
  }
  const prolong = (session: Session) =>
    session.prolong(
      [
        { op: 'setData', path: `${path}/s`, data: '' },
        { op: 'getEphemerals', path },
      ],
      call(),
    )
  const observer = () => rig.client().shared(call())
  const outcome = (asking: Promise<unknown>) =>
    asking.then(
      () => 'answered',
      (error: { outcome?: string; code?: string }) => error.outcome ?? error.code ?? error,
    )

  test('T1 a keep-alive counts from just before its one write', async () => {
    const session = await opened()
    const before = systemClock.monotonicMs()
    const prolonged = await prolong(session)
    expect(prolonged?.since.monotonicMs).toBeGreaterThanOrEqual(before)
    expect(prolonged).toMatchObject({
      timeoutMs: LONG_MS,
      replies: [{ ok: true, stat: { ephemeralOwner: session.id } }, { paths: [`${path}/s`] }],
    })
    expect(session.since && elapsedMs(systemClock, session.since)).toBeGreaterThan(0)
  })

  test('T19 a keep-alive amid 64 requests and 500 waiters leaves no outcome unknown and no waiter asleep', async () => {
    const session = await opened()
    const waiters = 500
    const creating = Array.from({ length: waiters }, (_, n) =>
      session.ask({ op: 'create', path: `${path}/w${n}` }, call()),
    )
    await Promise.all(creating)
    const told: WatchTold[] = []
    for (let n = 0; n < waiters; n++)
      await session.watch({ op: 'exists', path: `${path}/w${n}` }, (what) => void told.push(what), call())
    const deleter = await observer()
    // Deleted before, during and after the re-attachments.
    const deleting = Array.from({ length: waiters }, (_, n) =>
      deleter.ask({ op: 'delete', path: `${path}/w${n}` }, call()),
    )
    let isOver = false
    const outcomes: unknown[] = []
    const load = Array.from({ length: 64 }, async () => {
      while (!isOver)
        outcomes.push(await outcome(session.ask({ op: 'setData', path: `${path}/s`, data: 'x' }, call())))
    })
    for (let count = 0; count < 10; count++)
      expect(await prolong(session)).toMatchObject({ replies: [{ ok: true }, {}] })
    isOver = true
    await Promise.all([...load, ...deleting])
    expect(new Set(outcomes)).toEqual(new Set(['answered']))
    await waitFor('all to be told', async () => told.length === waiters)
    expect(new Set(told)).toEqual(new Set(['deleted']))
    expect(session.watched).toBe(0)
  })

  describe('a connection that breaks', () => {
    test('makes what was sent unknown; what comes next is served', async () => {
      const [first, second, third] = rig.doors as [Door, Door, Door]
      const session = await opened([first, second, third])
      first.proxy.drop('down')
      const sent = outcome(session.ask({ op: 'create', path: `${path}/sent` }, call()))
      const other = await observer()
      await waitFor(
        'it to be applied',
        async () => (await other.ask({ op: 'exists', path: `${path}/sent` }, call())).ok,
      )
      first.proxy.reset()
      first.proxy.refuse()
      expect(await sent).toBe('unknown')
      expect(await session.ask({ op: 'create', path: `${path}/sent` }, call())).toMatchObject({
        code: 'node-exists',
      })
      expect(session.isGone).toBe(false)
    })

    test('does not end what waits: watches are set again, and tell what has happened meanwhile', async () => {
      const [first, second, third] = rig.doors as [Door, Door, Door]
      const session = await opened([first, second, third])
      const told = new Map<string, WatchTold[]>()
      const watch = async (name: string, op: 'exists' | 'getData' = 'exists') => {
        const events: WatchTold[] = []
        told.set(name, events)
        return session.watch({ op, path: `${path}/${name}` }, (what) => void events.push(what), call())
      }
      for (const name of ['deleted', 'changed', 'kept', 'again'])
        await session.ask({ op: 'create', path: `${path}/${name}` }, call())
      for (const name of ['deleted', 'changed', 'kept', 'again', 'created']) await watch(name)
      expect(await watch('nothing', 'getData')).toMatchObject({ code: 'no-node' })
      expect(session.watched).toBe(5)
      for (const { proxy } of rig.doors) proxy.blackhole()
      const other = await rig.ensembleClient().shared(call())
      await other.ask({ op: 'delete', path: `${path}/deleted` }, call())
      await other.ask({ op: 'setData', path: `${path}/changed`, data: 'x' }, call())
      await other.ask({ op: 'create', path: `${path}/created` }, call())
      await other.ask({ op: 'delete', path: `${path}/again` }, call())
      await other.ask({ op: 'create', path: `${path}/again` }, call())
      for (const { proxy } of rig.doors) proxy.heal()
      await waitFor('all to be told', async () => session.watched === 1)
      expect(Object.fromEntries(told)).toEqual({
        deleted: ['deleted'],
        changed: ['changed'],
        created: ['created'],
        again: ['changed'],
        kept: [],
        nothing: [],
      })
      await other.ask({ op: 'delete', path: `${path}/kept` }, call())
      await waitFor('the last one', async () => told.get('kept')?.length === 1)
    })

    test('samuel/go-zookeeper #133 a re-attachment does not end the session', async () => {
      const session = await opened()
      for (let count = 0; count < 5; count++) {
        for (const { proxy } of rig.doors) proxy.reset()
        expect(await outcome(prolong(session))).toBe('answered')
      }
      expect(await session.ask({ op: 'getEphemerals', path }, call())).toMatchObject({ paths: [`${path}/s`] })
    })

    test('a request that was not sent is not applied', async () => {
      const session = await opened()
      for (const { proxy } of rig.doors) {
        proxy.reset()
        proxy.refuse()
      }
      await waitFor(
        'it to notice',
        async () => (await outcome(session.ask({ op: 'exists', path }, call()))) === 'not-applied',
      )
      const given = new Cancellation()
      const asked = outcome(session.ask({ op: 'create', path: `${path}/never` }, given))
      given.cancel(new Error('given up'))
      expect(await asked).toBe('not-applied')
      for (const { proxy } of rig.doors) proxy.heal()
      expect(await session.ask({ op: 'exists', path: `${path}/never` }, call())).toMatchObject({
        code: 'no-node',
      })
    })

    test('T16 a frozen member is left after a request that was given up', async () => {
      const [first, ...others] = await rig.followers()
      const session = await opened([first, ...others])
      await first.server.pause()
      const given = new Cancellation()
      const asked = outcome(session.ask({ op: 'exists', path }, given))
      systemClock.setTimer(600, () => given.cancel(new Error('its limit')))
      expect(await asked).toBe('unknown')
      await waitFor(
        'another one',
        async () => (await outcome(session.ask({ op: 'exists', path }, call()))) === 'answered',
      )
    })

    test('two clients of one session take it from each other', async () => {
      const [first, second, third] = rig.doors as [Door, Door, Door]
      const one = await opened([first, third])
      const other = rig.client([second, third]).attach(one.id, LONG_MS)
      await other.prolong([], call())
      // The member of the first one does not know yet that it is not its session any more.
      expect(await outcome(one.ask({ op: 'setData', path: `${path}/s`, data: '' }, call()))).toBe('unknown')
      for (const each of [one, other, one, other]) {
        expect(await prolong(each)).toMatchObject({ replies: [{ ok: true }, {}] })
        expect(await each.ask({ op: 'setData', path: `${path}/s`, data: '' }, call())).toMatchObject({
          ok: true,
        })
      }
    })
  })

  describe('a session that has gone', () => {
    test('is told to waiters, requests and keep-alives', async () => {
      const session = await opened()
      const told: string[] = []
      await session.watch({ op: 'exists', path: `${path}/s` }, (what) => void told.push(what), call())
      await session.watch({ op: 'exists', path }, (what) => void told.push(what), call())
      // Its own client takes it back as soon as its connection is closed, so the other one may have to try again.
      await waitFor('the session to end', () =>
        rig
          .client()
          .attach(session.id, LONG_MS)
          .end(call())
          .then(
            () => true,
            () => false,
          ),
      )
      expect(await prolong(session)).toBeNull()
      expect(session.isGone).toBe(true)
      expect(told).toEqual(['lost', 'lost'])
      expect(await session.ask({ op: 'exists', path }, call())).toMatchObject({
        ok: false,
        code: 'session-gone',
      })
      expect(await prolong(session)).toBeNull()
      // To end what has ended is no error.
      await session.end(call())
    })

    test('is told by the members when its time was up', async () => {
      const session = await opened(rig.doors, 400)
      const other = await observer()
      await waitFor(
        'it to expire',
        async () => !(await other.ask({ op: 'exists', path: `${path}/s` }, call())).ok,
      )
      expect(await prolong(session)).toBeNull()
    })

    test('C25 its claims stay when its connection is dropped', async () => {
      const session = await opened()
      session.drop()
      expect(await outcome(session.ask({ op: 'exists', path }, call()))).toBe('not-applied')
      expect(await outcome(prolong(session))).toBe('not-applied')
      const other = await observer()
      expect(await other.ask({ op: 'exists', path: `${path}/s` }, call())).toMatchObject({ ok: true })
    })
  })

  describe('members that fail', () => {
    test('a session moves to another member with its next keep-alive, and its old connection proves nothing', async () => {
      const [follower, another] = await rig.followers()
      const session = await opened([follower, another])
      rig.ensemble.cutOff(follower.server)
      await waitFor('a keep-alive', async () => (await outcome(prolong(session))) === 'answered')
      const other = await rig.client([another]).shared(call())
      const [read, prolonged] = [
        await other.ask({ op: 'exists', path: `${path}/s` }, call()),
        await prolong(session),
      ]
      expect(read).toMatchObject({ ok: true })
      expect(prolonged).not.toBeNull()
    })

    test('T16 a frozen member does not end a session: half of a keep-alive’s time is for the next one', async () => {
      const [first, second] = await rig.followers()
      const session = await opened([first, second], 6_000)
      await first.server.pause()
      const limit = new Cancellation()
      const timer = systemClock.setTimer(60_000, () => limit.cancel(new Error('a hang')))
      const prolonged = await session.prolong([{ op: 'setData', path: `${path}/s`, data: '' }], limit)
      timer.cancel()
      expect(prolonged).toMatchObject({ replies: [{ ok: true }] })
    })

    describe('belief never outlives the node (T62, T91)', () => {
      const TTL_MS = 3_000
      type Touch = (session: Session) => Promise<{ readonly since: Instant } | null>
      /** A cheaper proof that is none: a touch, a tick in which the member tells its leader of it, and a committed write. */
      const touchTickWrite: Touch = async (session) => {
        const since = instantOf(systemClock)
        await session.ask({ op: 'exists', path }, call())
        await sleep(systemClock, 200)
        const { ok } = await session.ask({ op: 'setData', path: `${path}/s`, data: '' }, call())
        return ok ? { since } : null
      }

      async function deletionOf(node: string, at: Session): Promise<Instant> {
        for (;;) {
          const told = Promise.withResolvers<void>()
          const { ok } = await at.watch({ op: 'getData', path: node }, () => told.resolve(), call())
          if (!ok) return instantOf(systemClock)
          await told.promise
        }
      }

      test.each([
        ['a re-attachment and a write', prolong, false],
        ['control: a touch, a tick and a write', touchTickWrite, true],
      ] as const)(
        'when the leader is not heard, and then not told: %s',
        async (_what, touch: Touch, isFooled) => {
          const leader = await rig.leader()
          const [follower] = await rig.followers()
          const session = await opened([follower], TTL_MS)
          const first = await prolong(session)
          if (first === null) throw new Error('it has gone')
          const other = await rig.client([leader]).shared(call())
          const deleted = deletionOf(`${path}/s`, other)
          // Nothing has told the leader of the session since.
          await sleep(systemClock, TTL_MS / 2)
          rig.ensemble.stall(leader.server, follower.server)
          const touched = outcome(touch(session).then((result) => Object.assign(believed, result)))
          const believed: { since: Instant } = { since: first.since }
          if (isFooled)
            await waitFor('the leader to commit the write', async () => {
              const node = await other.ask({ op: 'exists', path: `${path}/s` }, call())
              return node.ok && node.stat.version > 1
            })
          else await sleep(systemClock, 300)
          rig.ensemble.heal()
          rig.ensemble.stall(follower.server, leader.server)
          await touched
          const heldMs = elapsedUntil(await deleted, believed.since)
          if (isFooled) expect(heldMs).toBeLessThan(TTL_MS)
          else expect(heldMs).toBeGreaterThanOrEqual(TTL_MS)
        },
      )

      test('a deposed leader answers a re-attachment and a read, and no keep-alive', async () => {
        const leader = await rig.leader()
        const others = await rig.followers()
        const session = await opened([leader])
        rig.ensemble.cutOff(leader.server)
        const read = await session.prolong([{ op: 'exists', path: `${path}/s` }], call())
        expect(read).toMatchObject({ replies: [{ ok: true }] })
        expect(await outcome(prolong(session))).not.toBe('answered')
        // Those who have a leader go on with the session.
        const again = rig.client(others).attach(session.id, LONG_MS)
        await waitFor('a keep-alive', async () => (await outcome(prolong(again))) === 'answered')
      })
    })

    test('all members restart: the session is there', async () => {
      const session = await opened()
      let told: WatchTold | undefined
      const tell = (what: WatchTold) => {
        told = what
      }
      await session.watch({ op: 'exists', path: `${path}/s` }, tell, call())
      await Promise.all(rig.doors.map(({ server }) => server.kill()))
      await Promise.all(rig.doors.map(({ server }) => server.restart()))
      await waitFor('a keep-alive', async () => (await outcome(prolong(session))) === 'answered')
      expect(session.isGone).toBe(false)
      expect(told).toBe('changed')
    })
  })
})
