/** The client on three members: what it asks for and is answered, sessions, credentials and rights. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { startZooKeeper, waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { ClientRig, MAX_TIMEOUT_MS } from '../../../../test/zookeeper/client-rig.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { systemClock } from '../../../base/clock.ts'
import { systemRandom } from '../../../base/ids.ts'
import { call } from '../../../testing/conformance/requests.ts'
import { type Session, ZooKeeperClient, type ZooKeeperClientOptions } from './index.ts'
import { type NodeEvent, nextXid } from './messages.ts'
import { passwordOf } from './password.ts'

const fixture = (file: string) =>
  fileURLToPath(new URL(`../../../../test/etcd/fixtures/${file}`, import.meta.url))

describe.runIf(wanted('zookeeper'))('the client of ZooKeeper', () => {
  let rig: ClientRig
  let paths = 0
  beforeAll(async () => {
    rig = await ClientRig.start()
  })
  afterEach(() => rig.clear())
  afterAll(() => rig[Symbol.asyncDispose]())

  /** A session, and a path of its own. */
  async function opened(
    timeoutMs = 10_000,
  ): Promise<{ session: Session; client: ZooKeeperClient; path: string }> {
    const client = rig.client()
    const path = `/client/${++paths}`
    await client.makePath(path, call())
    return { session: await client.open(timeoutMs, call()), client, path }
  }

  test('requests that leave in one turn are served in their order', async () => {
    const { session, path } = await opened()
    const answers = await Promise.all([
      session.ask({ op: 'create', path: `${path}/c`, mode: 'container' }, call()),
      session.ask({ op: 'create', path: `${path}/c/x-`, mode: 'ephemeral-sequential', data: 'é' }, call()),
      session.ask({ op: 'create', path: `${path}/c/x-`, mode: 'persistent-sequential' }, call()),
      session.ask({ op: 'getData', path: `${path}/c/x-0000000000` }, call()),
      session.ask({ op: 'setData', path: `${path}/c/x-0000000000`, data: '', version: 0 }, call()),
      session.ask({ op: 'getChildren', path: `${path}/c` }, call()),
      session.ask({ op: 'getEphemerals', path }, call()),
      session.ask({ op: 'delete', path: `${path}/c/x-0000000001`, version: 0 }, call()),
      session.ask({ op: 'exists', path: `${path}/c` }, call()),
    ])
    const [container, first, second, read, written, list, mine, , exists] = answers
    expect(answers.map(({ ok }) => ok)).toEqual(answers.map(() => true))
    expect(container).toMatchObject({ path: `${path}/c` })
    expect(first).toMatchObject({ path: `${path}/c/x-0000000000`, stat: { ephemeralOwner: session.id } })
    expect(second).toMatchObject({ path: `${path}/c/x-0000000001`, stat: { ephemeralOwner: 0n } })
    expect(read).toMatchObject({ data: 'é', stat: { version: 0 } })
    expect(written).toMatchObject({ stat: { version: 1, mzxid: written.zxid } })
    expect(list).toMatchObject({ stat: { numChildren: 2 } })
    expect(list.ok && list.children.toSorted()).toEqual(['x-0000000000', 'x-0000000001'])
    expect(mine).toMatchObject({ paths: [`${path}/c/x-0000000000`] })
    expect(exists).toMatchObject({ stat: { numChildren: 1, cversion: 3 } })
    const zxids = answers.map(({ zxid }) => zxid)
    expect(zxids).toEqual(zxids.toSorted((a, b) => Number(a - b)))
  })

  test('a refusal is an answer', async () => {
    const { session, path } = await opened()
    await session.ask({ op: 'create', path: `${path}/a` }, call())
    const refused = (asking: Promise<unknown>) => expect(asking).resolves
    await refused(session.ask({ op: 'getData', path: `${path}/b` }, call())).toMatchObject({
      ok: false,
      code: 'no-node',
    })
    await refused(session.ask({ op: 'create', path: `${path}/a` }, call())).toMatchObject({
      code: 'node-exists',
    })
    await refused(session.ask({ op: 'delete', path: `${path}/a`, version: 7 }, call())).toMatchObject({
      code: 'bad-version',
    })
    await refused(session.ask({ op: 'delete', path }, call())).toMatchObject({ code: 'not-empty' })
    await session.end(call())
    const gone = await rig.client().attach(session.id, 10_000).prolong([], call())
    expect(gone).toBeNull()
  })

  test('a multi is done as a whole, or tells which part was refused', async () => {
    const { session, path } = await opened()
    const parts = [
      { op: 'create', path: `${path}/a`, mode: 'ephemeral' },
      { op: 'create', path: `${path}/c`, mode: 'container' },
      { op: 'setData', path, data: 'x' },
      { op: 'check', path, version: 1 },
      { op: 'create', path: `${path}/b` },
      { op: 'delete', path: `${path}/b` },
    ] as const
    const done = await session.ask({ op: 'multi', parts }, call())
    expect(done).toMatchObject({
      ok: true,
      results: [{ path: `${path}/a` }, { path: `${path}/c` }, { stat: { numChildren: 2 } }, {}, {}, {}],
    })
    const again = await session.ask({ op: 'multi', parts: [...parts].reverse() }, call())
    expect(again).toMatchObject({ ok: false, code: 'no-node', part: 0 })
    const last = await session.ask(
      { op: 'multi', parts: [{ op: 'setData', path, data: 'y' }, ...parts] },
      call(),
    )
    expect(last).toMatchObject({ ok: false, code: 'node-exists', part: 1 })
    expect(await session.ask({ op: 'getData', path }, call())).toMatchObject({ data: 'x' })
    expect(await session.ask({ op: 'multi', parts: [] }, call())).toMatchObject({ ok: true, results: [] })
  })

  test('the bounds of sessions are asked for, and no session stays behind', async () => {
    const client = rig.client()
    expect(await client.negotiated(call())).toEqual({ minMs: 400, maxMs: MAX_TIMEOUT_MS })
    await waitFor('no session', async () => (await rig.sessions()).length === 0)
  })

  test('another process goes on with a session by its id', async () => {
    const { session, path } = await opened()
    await session.ask({ op: 'create', path: `${path}/mine`, mode: 'ephemeral' }, call())
    const attached = rig.client().attach(session.id, 10_000)
    expect(attached).toMatchObject({ id: session.id, since: null, timeoutMs: 10_000 })
    expect(await attached?.ask({ op: 'getEphemerals', path }, call())).toMatchObject({
      paths: [`${path}/mine`],
    })
    await attached?.end(call())
    const observer = await rig.client().shared(call())
    expect(await observer.ask({ op: 'exists', path: `${path}/mine` }, call())).toMatchObject({
      code: 'no-node',
    })
    // The first process learns of it.
    await waitFor('it to be told', async () =>
      session.ask({ op: 'exists', path }, call()).then(
        (reply) => !reply.ok && reply.code === 'session-gone',
        () => null,
      ),
    )
    expect(await session.prolong([{ op: 'setData', path, data: '' }], call())).toBeNull()
  })

  test('the password of a session is Java’s `Random`', () => {
    // What `new Random(42)` gives, whoever asks.
    const password = passwordOf(42n ^ 0xb3415c00n)
    const numbers = [0, 4, 8, 12].map((at) => password.readInt32LE(at))
    expect(numbers).toEqual([-1_170_105_035, 234_785_527, -1_360_544_799, 205_897_768])
    expect(passwordOf(-1n)).not.toEqual(passwordOf(1n))
  })

  test('numbers of requests stay positive when they wrap', () => {
    expect([0, 1, 2 ** 31 - 2, 2 ** 31 - 1].map(nextXid)).toEqual([1, 2, 2 ** 31 - 1, 1])
  })

  test('a watch that is taken back before its reply comes tells nothing, and is not kept', async () => {
    const { session, path } = await opened()
    const told: string[] = []
    const tell = (what: string) => void told.push(what)
    const watching = session.watch({ op: 'exists', path }, tell, call())
    session.unwatch(path, tell)
    expect((await watching).ok).toBe(true)
    expect(session.watched).toBe(0)
    await session.ask({ op: 'setData', path, data: 'x' }, call())
    expect(told).toEqual([])
  })

  describe('the shared session', () => {
    test('is opened once for all callers that find the last one gone', async () => {
      const client = rig.client()
      await (await client.shared(call())).end(call())
      const shared = await Promise.all([1, 2, 3].map(() => client.shared(call())))
      expect(new Set(shared).size).toBe(1)
      expect(await rig.sessions()).toEqual([shared[0]?.id])
    })

    test('lives by pings, longer than its time', async () => {
      await using ensemble = await startZooKeeper({ settings: { maxSessionTimeout: '2000' } })
      const hosts = ensemble.members.map(({ host, port }) => `${host}:${port}`)
      const client = new ZooKeeperClient('zookeeper', { hosts, acl: 'open' }, systemClock, systemRandom)
      const shared = await client.shared(call())
      const create = (session: Session, path: string) =>
        session.ask({ op: 'create', path, mode: 'ephemeral' }, call())
      await create(shared, '/pinged')
      // Of two sessions of one length, that without pings ends.
      const other = await client.open(shared.timeoutMs, call())
      await create(other, '/silent')
      const isThere = async (path: string) => (await shared.ask({ op: 'exists', path }, call())).ok
      await waitFor('the other one to end', async () => !(await isThere('/silent')))
      // The look above may have kept it alive.
      await create(await client.open(shared.timeoutMs, call()), '/silent')
      let told: string | undefined
      const tell = (what: string) => {
        told = what
      }
      await shared.watch({ op: 'exists', path: '/silent' }, tell, call())
      await waitFor('the next one to end', async () => told === 'deleted')
      expect(await isThere('/pinged')).toBe(true)
      await client.close()
    })

    test('T22 T102 concurrent callers share its opening, and one of them that gives up ends nothing', async () => {
      const client = rig.client()
      const given = new Cancellation()
      const first = client.shared(given)
      const second = client.shared(call())
      given.cancel(new Error('given up'))
      await expect(first).rejects.toMatchObject({ outcome: 'not-applied' })
      expect(await client.shared(call())).toBe(await second)
      expect(await rig.sessions()).toHaveLength(1)
    })

    test('one that has gone is replaced', async () => {
      const client = rig.client()
      const shared = await client.shared(call())
      await shared.end(call())
      expect(await rig.client().attach(shared.id, 10_000).prolong([], call())).toBeNull()
      const next = await client.shared(call())
      expect(next).not.toBe(shared)
      expect(await next.ask({ op: 'exists', path: '/' }, call())).toMatchObject({ ok: true })
    })

    test('T19 its tree is watched until the connection is lost, which is told once', async () => {
      const { client, path, session } = await opened()
      const shared = await client.shared(call())
      const told: (NodeEvent | 'lost')[] = []
      const watcher = { onEvent: (event: NodeEvent) => told.push(event), onLost: () => told.push('lost') }
      const end = await shared.watchTree(path, watcher, call())
      await session.ask({ op: 'create', path: `${path}/a` }, call())
      await session.ask({ op: 'setData', path: `${path}/a`, data: '' }, call())
      await session.ask({ op: 'delete', path: `${path}/a` }, call())
      // A path that only begins like it is another one.
      await session.ask({ op: 'create', path: `${path}b` }, call())
      await shared.ask({ op: 'setData', path: `${path}b`, data: '' }, call())
      expect(told).toEqual(
        (['created', 'changed', 'deleted'] as const).map((kind) => ({ kind, path: `${path}/a` })),
      )
      for (const { proxy } of rig.doors) proxy.reset()
      await waitFor('it to be told', async () => told.at(-1) === 'lost')
      await shared.ask({ op: 'create', path: `${path}/c` }, call())
      expect(told).toHaveLength(4)
      end?.()
      const [more] = [told.splice(0)]
      expect(more?.filter((each) => each === 'lost')).toHaveLength(1)
      const ended = await shared.watchTree(path, watcher, call())
      ended?.()
      await shared.ask({ op: 'create', path: `${path}/d` }, call())
      await shared.ask({ op: 'setData', path: `${path}b`, data: '' }, call())
      expect(told).toEqual([])
    })
  })

  describe('credentials and rights', () => {
    const ada = { username: 'ada', password: 'secret', acl: 'creator' } as const

    test('nodes belong to their creator', async () => {
      const path = `/client/${++paths}`
      await rig.client(rig.doors, ada).makePath(path, call())
      const others = [rig.client(), rig.client(rig.doors, { ...ada, password: 'wrong' })]
      for (const other of others) {
        const session = await other.open(10_000, call())
        const asked = session.ask({ op: 'setData', path, data: '' }, call())
        await expect(asked).rejects.toMatchObject({ code: 'UNSUPPORTED' })
        await expect(asked).rejects.toThrow('Give those with which the nodes were created')
        const parts = [{ op: 'setData', path, data: '' }] as const
        await expect(session.ask({ op: 'multi', parts }, call())).rejects.toMatchObject({
          code: 'UNSUPPORTED',
        })
      }
      const same = await rig.client(rig.doors, ada).open(10_000, call())
      expect(await same.ask({ op: 'setData', path, data: '' }, call())).toMatchObject({ ok: true })
      // Also after a re-attachment, whose first write has the credentials.
      expect(await same.prolong([{ op: 'setData', path, data: '' }], call())).toMatchObject({
        replies: [{ ok: true }],
      })
    })

    test('a chroot that is missing is created, or a sentence says what is missing', async () => {
      const chroot = `/client/${++paths}/a/b`
      const client = rig.client(rig.doors, { ...ada, chroot: `${chroot}/` })
      expect(client.chroot).toBe(chroot)
      await client.makePath(`${client.chroot}/holdfast`, call())
      await client.makePath(`${client.chroot}/holdfast`, call())
      const other = rig.client(rig.doors, { ...ada, username: 'bob' })
      const asked = other.makePath(`${chroot}/other`, call())
      await expect(asked).rejects.toMatchObject({ code: 'UNSUPPORTED' })
      // ZooKeeper 3.9 does not tell these credentials whether it exists.
      const sentence = new RegExp(`${chroot}(/other does not exist, and cannot be created| may not be read)`)
      await expect(asked).rejects.toThrow(sentence)
    })

    test('TLS with certificates on both sides; that of the client is its credentials', async () => {
      const files = { ca: fixture('ca.pem'), cert: fixture('server.pem'), key: fixture('server-key.pem') }
      await using ensemble = await startZooKeeper({ tls: files, members: 3 })
      const hosts = ensemble.members.map(({ host, port }) => `${host}:${port}`)
      const ca = readFileSync(files.ca)
      const tls = {
        ca,
        cert: readFileSync(fixture('client.pem')),
        key: readFileSync(fixture('client-key.pem')),
      }
      const connect = (options: Partial<ZooKeeperClientOptions>) =>
        new ZooKeeperClient('zookeeper', { hosts, ...options }, systemClock, systemRandom)
      const client = connect({ tls })
      await waitFor('the node', async () => {
        await client.makePath('/mine', call())
        return true
      })
      const session = await client.open(10_000, call())
      expect(await session.prolong([{ op: 'setData', path: '/mine', data: '' }], call())).toMatchObject({
        replies: [{ ok: true }],
      })
      const other = connect({ username: 'ada' })
      const its = await waitFor('a session', () => other.open(10_000, call()))
      const asked = its.ask({ op: 'getData', path: '/mine' }, call())
      await expect(asked).rejects.toMatchObject({ code: 'UNSUPPORTED' })

      for (const refused of [{ tls: { ca }, username: 'ada' }, { tls: { ...tls, ca: tls.cert } }]) {
        const unreachable = connect(refused)
        await expect(unreachable.open(10_000, call())).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
        await unreachable.close()
      }
      await expect(connect({ tls: { ...tls, ca: tls.cert } }).open(10_000, call())).rejects.toThrow(
        'has a certificate that is not accepted',
      )
      await Promise.all([client.close(), other.close()])
    })

    test('without credentials, an open ACL must be asked for', () => {
      const open = (options: object) => () =>
        new ZooKeeperClient('zookeeper', { hosts: ['a:2181'], ...options }, systemClock, systemRandom)
      expect(open({})).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT', argument: 'acl' }))
      expect(open({ acl: 'none' })).toThrow(expect.objectContaining({ argument: 'acl' }))
      expect(open({ acl: 'open', hosts: [] })).toThrow(expect.objectContaining({ argument: 'hosts' }))
      expect(open({ acl: 'open', hosts: ['a'] })).toThrow(expect.objectContaining({ argument: 'hosts' }))
      expect(open({ acl: 'open', chroot: 'a' })).toThrow(expect.objectContaining({ argument: 'chroot' }))
    })
  })
})
