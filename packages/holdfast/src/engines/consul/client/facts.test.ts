/** What the backend relies on in Consul, so that a version that does otherwise is noticed. On real servers. */
import { type ConsulCluster, fetchJson, startConsul, waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { systemClock } from '../../../base/clock.ts'
import { neverCancelled as call } from '../../../kit/backend-kit.ts'
import * as consul from './index.ts'

const NOBODY = '11111111-1111-1111-1111-111111111111'

describe.runIf(wanted('consul'))('Consul', { timeout: 120_000 }, () => {
  let cluster: ConsulCluster
  let client: consul.ConsulClient
  let session: string
  let count = 0
  let key = ''
  beforeAll(async () => {
    cluster = await startConsul({ members: 3 })
    client = new consul.ConsulClient('consul', { hosts: cluster.members.map(({ url }) => url) }, systemClock)
    session = await open('delete')
  }, 120_000)
  afterAll(async () => {
    client?.close()
    await cluster?.stop()
  })

  const open = (behavior: 'delete' | 'release', lockDelayMs = 0, ttlMs = 60_000) =>
    consul.createSession(client, { ttlMs, behavior, lockDelayMs }, call)
  const transact = (...operations: readonly consul.Operation[]) => client.transact(operations, call)
  const applied = async (...operations: readonly consul.Operation[]) => {
    const { entries, refused } = await transact(...operations)
    if (entries === undefined) throw new Error(refused.what)
    return entries
  }
  const refusal = async (...operations: readonly consul.Operation[]) =>
    (await transact(...operations)).refused
  const read = async (name: string) => (await applied(consul.tree(name))).find((entry) => entry.key === name)
  /** A key of its own for each test. */
  const fresh = () => {
    key = `facts/${++count}`
    return key
  }

  describe('a transaction', () => {
    test('has at most 64 operations', async () => {
      const sets = Array.from({ length: 65 }, (_, index) => consul.set(`${fresh()}/${index}`, ''))
      await expect(transact(...sets)).rejects.toMatchObject({ outcome: 'not-applied' })
      expect(await applied(...sets.slice(1))).toHaveLength(64)
    })

    test('is applied whole or not at all, and says which operation it refuses and why', async () => {
      fresh()
      const refused = await refusal(
        consul.set(`${key}/a`, ''),
        consul.absent(`${key}/a`),
        consul.set(`${key}/b`, ''),
      )
      expect(refused).toMatchObject({ index: 1, what: expect.stringContaining('exists') })
      expect(await applied(consul.tree(`${key}/`))).toEqual([])
    })

    test.each<[what: string, build: (name: string) => consul.Operation, message: string]>([
      ['a key that is there', (name) => consul.absent(name), 'exists'],
      ['another index', (name) => consul.unchanged(name, 1n), 'failed index check'],
      ['an index of a missing key', (name) => consul.unchanged(`${name}/no`, 1n), "doesn't exist"],
      ['a check-and-set at another index', (name) => consul.cas(name, 'x', 1n), 'index is stale'],
      ['a check-and-set of a missing key', (name) => consul.cas(`${name}/no`, 'x', 1n), 'index is stale'],
      ['another session', (name) => consul.lockedBy(name, NOBODY), 'failed session check'],
      ['a session of a missing key', (name) => consul.lockedBy(`${name}/no`, NOBODY), "doesn't exist"],
      ['a session that is not there', (name) => consul.lock(`${name}/new`, '', NOBODY), 'invalid session'],
    ])('refuses %s', async (_what, build, message) => {
      await applied(consul.lock(fresh(), 'value', session))
      expect(await refusal(build(key))).toEqual({ index: 0, what: expect.stringContaining(message) })
    })

    test('gives all its writes one index, which is its own, and answers lock, cas and set with it', async () => {
      fresh()
      const [first] = await applied(consul.set(`${key}/b`, ''))
      const entries = await applied(
        consul.lock(`${key}/a`, 'a', session),
        consul.cas(`${key}/b`, 'b', first?.modified ?? 0n),
        consul.set(`${key}/c`, 'c'),
      )
      const indexes = new Set(entries.map(({ modified }) => modified))
      expect([entries.length, indexes.size]).toEqual([3, 1])
      expect([...indexes][0]).toBeGreaterThan(first?.modified ?? 0n)
      // Without what was written.
      expect(entries.map(({ value }) => value)).toEqual(['', '', ''])
    })

    test('reads what it has written itself: get-tree has all entries below a prefix with values, or none', async () => {
      fresh()
      const entries = await applied(
        consul.lock(`${key}/a`, 'a', session),
        consul.tree(`${key}/`),
        consul.tree('facts/none'),
      )
      expect(consul.byKey(entries)).toEqual([
        expect.objectContaining({ key: `${key}/a`, value: 'a', session, created: entries[0]?.modified }),
      ])
    })

    test('answers some operations with an entry and some not, so results are told apart by their keys', async () => {
      const [made] = await applied(consul.lock(fresh(), 'value', session))
      const { modified = 0n } = made ?? {}
      // Without what is stored.
      expect(await applied(consul.unchanged(key, modified))).toEqual([{ ...made, value: '' }])
      expect(await applied(consul.lockedBy(key, session))).toEqual([{ ...made, value: '' }])
      expect(await applied(consul.absent(`${key}/no`), consul.remove(key), consul.remove(key))).toEqual([])
    })

    test('with a get of a missing key is refused as a whole', async () => {
      const operations = [consul.set(fresh(), '1'), { KV: { Verb: 'get', Key: `${key}/no` } }]
      expect(await refusal(...operations)).toEqual({
        index: 1,
        what: expect.stringContaining("doesn't exist"),
      })
      expect(await read(key)).toBe(undefined)
    })

    test('T88 is answered without a term and without the name of a leader', async () => {
      for (const operation of [consul.set(fresh(), '1'), consul.tree(key)]) {
        const init = { method: 'PUT', body: JSON.stringify([operation]) }
        const answer = await fetch(`${cluster.members[0]?.url}/v1/txn?consistent`, init)
        const headers = [...answer.headers.keys()].filter((name) => name.startsWith('x-consul'))
        const told = [...headers, ...Object.keys((await answer.json()) as object)]
        // A read: whether there is a leader, and how long ago it was heard of.
        const ofReads =
          /^(Index|KnownLeader|LastContact|ConsistencyLevel|x-consul-(index|knownleader|lastcontact))$/
        expect(told.filter((each) => !ofReads.test(each)).toSorted()).toEqual(['Errors', 'Results'])
      }
    })

    test('uses up an index also when it is refused', async () => {
      const [before] = await applied(consul.set(fresh(), '1'))
      await refusal(consul.absent(key), consul.set(key, '2'))
      const [after] = await applied(consul.set(key, '3'))
      expect((after?.modified ?? 0n) - (before?.modified ?? 0n)).toBeGreaterThanOrEqual(2n)
    })

    test('that only reads or compares does not: it does not go through Raft', async () => {
      const [before] = await applied(consul.set(fresh(), '1'))
      for (let times = 0; times < 20; times++) {
        await client.transact([consul.tree(key)], call, { isConsistent: true })
        await client.transact([consul.unchanged(`${key}/no`, 0n)], call, { isConsistent: true })
      }
      const [after] = await applied(consul.set(key, '2'))
      expect((after?.modified ?? 0n) - (before?.modified ?? 0n)).toBeLessThan(20n)
    })

    test('T88 with ?consistent, a read is not answered by a leader that reaches no majority', async () => {
      const leader = await cluster.leader()
      const others = cluster.members.filter((member) => member !== leader)
      const direct = new consul.ConsulClient('consul', { hosts: [leader.url] }, systemClock)
      const reading = () => direct.transact([consul.tree('facts/none')], call, { isConsistent: true })
      await reading()
      await Promise.all(others.map((member) => member.pause()))
      try {
        const leads = async () => (await fetchJson(`${leader.url}/v1/status/leader`, {}, 1_000)) !== ''
        const over = waitFor('the leader gives up', async () => !(await leads())).then(() => false)
        const isAnswered = () =>
          reading().then(
            () => true,
            () => false,
          )
        let answered = 0
        while (await Promise.race([isAnswered(), over])) answered++
        // Replies of the followers may have been in flight when they stopped. Reads without ?consistent are answered for half a second.
        expect(answered).toBeLessThan(5)
      } finally {
        await Promise.all(others.map((member) => member.resume()))
        direct.close()
        await cluster.leader()
        await waitFor('writes are taken', () => applied(consul.set(fresh(), '1')))
      }
    })

    test('deletes all below a prefix with one operation, and answers nothing', async () => {
      await applied(consul.set(`${fresh()}/a`, ''), consul.set(`${key}/b`, ''), consul.set(`${key}-c`, ''))
      expect(await applied({ KV: { Verb: 'delete-tree', Key: `${key}/` } })).toEqual([])
      expect((await applied(consul.tree(key))).map((entry) => entry.key)).toEqual([`${key}-c`])
    })

    test('T34 a deletion by check-and-set of a missing key succeeds, so it proves nothing (Consul #348)', async () => {
      const operation = { KV: { Verb: 'delete-cas', Key: `${fresh()}/no`, Index: 5 } }
      expect(await applied(operation)).toEqual([])
    })
  })

  describe('a key', () => {
    test('T70 is locked again by its session, whoever asks; not by another session', async () => {
      const [first] = await applied(consul.lock(fresh(), '1', session))
      const [again] = await applied(consul.lock(key, '2', session))
      expect(again).toMatchObject({ session, created: first?.created })
      expect(again?.modified).toBeGreaterThan(first?.modified ?? 0n)
      const other = await open('delete')
      expect(await refusal(consul.lock(key, '3', other))).toMatchObject({
        what: expect.stringContaining('already held'),
      })
      await consul.destroySession(client, other, call)
    })

    test('T70 may be locked for a session by any client that knows its id, at any server', async () => {
      const [, , third] = cluster.members
      const stranger = new consul.ConsulClient('consul', { hosts: [third?.url ?? ''] }, systemClock)
      await applied(consul.lock(fresh(), '1', session))
      const { entries } = await stranger.transact([consul.lock(key, '2', session)], call)
      expect(entries).toMatchObject([{ key, session }])
      expect(await read(key)).toMatchObject({ session, value: '2' })
      stranger.close()
    })

    test('is unlocked by its own session alone, and stays', async () => {
      const unlocking = (by: string) => ({ KV: { ...consul.lock(key, 'left', by).KV, Verb: 'unlock' } })
      const [made] = await applied(consul.lock(fresh(), '1', session))
      const other = await open('delete')
      expect(await refusal(unlocking(other))).toMatchObject({ what: expect.stringContaining('lock') })
      expect(await read(key)).toMatchObject({ session, modified: made?.modified })
      await applied(unlocking(session))
      expect(await read(key)).toMatchObject({ session: undefined, value: 'left', created: made?.created })
      await consul.destroySession(client, other, call)
    })

    test.each(['cas', 'set'] as const)('stays locked by its session after a %s', async (verb) => {
      const [made] = await applied(consul.lock(fresh(), '1', session))
      await applied(verb === 'set' ? consul.set(key, '2') : consul.cas(key, '2', made?.modified ?? 0n))
      expect(await read(key)).toMatchObject({ session, value: '2', created: made?.created })
    })

    test('keeps its index if it is written as it is, and changes it otherwise', async () => {
      const [made] = await applied(consul.lock(fresh(), '1', session))
      await applied(consul.lock(key, '1', session))
      expect((await read(key))?.modified).toBe(made?.modified)
      await applied(consul.lock(key, '2', session))
      expect((await read(key))?.modified).toBeGreaterThan(made?.modified ?? 0n)
    })

    test('T36 restarts its lock index when it was deleted, and not its other indexes', async () => {
      const [first] = await applied(consul.lock(fresh(), '1', session))
      await applied(consul.remove(key))
      const [second] = await applied(consul.lock(key, '1', session))
      expect(second?.created).toBeGreaterThan(first?.modified ?? 0n)
    })

    test('without our flags is foreign, and its value is not looked at', async () => {
      await fetchJson(`${cluster.members[0]?.url}/v1/kv/${fresh()}`, { method: 'PUT', body: 'foreign' })
      expect(await applied(consul.tree(key))).toMatchObject([{ key, isForeign: true, value: '' }])
    })
  })

  describe('a session', () => {
    test('takes its keys with it, and a session that has gone is neither renewed nor used', async () => {
      const mine = await open('delete')
      await applied(consul.lock(fresh(), '', mine))
      expect(await consul.renewSession(client, mine, call)).not.toBe(null)
      await consul.destroySession(client, mine, call)
      expect(await applied(consul.tree(key))).toEqual([])
      expect(await consul.renewSession(client, mine, call)).toBe(null)
      await consul.destroySession(client, mine, call)
    })

    test('has no checks, and no lock-delay unless it is asked for', async () => {
      const mine = await open('delete')
      const [info] = await fetchJson<object[]>(`${cluster.members[0]?.url}/v1/session/info/${mine}`)
      expect(info).toMatchObject({ LockDelay: 0, Behavior: 'delete', TTL: '60000ms', NodeChecks: [] })
    })

    test('T4 expires between its TTL and twice its TTL, and a little', async () => {
      const ttlMs = 1_500
      const mine = await open('delete', 0, ttlMs)
      await applied(consul.lock(fresh(), '', mine))
      await consul.renewSession(client, mine, call)
      const startMs = performance.now()
      await waitFor('it expires', async () => (await read(key)) === undefined)
      expect(performance.now() - startMs).toBeGreaterThan(2 * ttlMs - 100)
    })

    test('T23 leaves its keys unlocked when it is told so, and its lock-delay refuses every lock until it is over', async () => {
      const delayed = await open('release', 1_000)
      await applied(consul.lock(fresh(), 'tombstone', delayed))
      expect(await refusal(consul.lock(key, '', session), consul.remove(key))).toMatchObject({
        what: expect.stringContaining('already held'),
      })
      await consul.destroySession(client, delayed, call)
      expect(await read(key)).toMatchObject({ value: 'tombstone', session: undefined })
      expect(await refusal(consul.lock(key, '', session), consul.remove(key))).toMatchObject({
        what: expect.stringContaining('lock delay'),
      })
      await waitFor(
        'the lock-delay is over',
        async () => (await refusal(consul.lock(key, '', session), consul.remove(key))) === undefined,
      )
      expect(await read(key)).toBe(undefined)
    })

    test('T23 a refused lock-delay uses up no index: it is answered before Raft', async () => {
      const delayed = await open('release', 60_000)
      await applied(consul.lock(fresh(), '', delayed))
      await consul.destroySession(client, delayed, call)
      const [before] = await applied(consul.set(`${key}/other`, '1'))
      for (let times = 0; times < 20; times++)
        await refusal(consul.lock(key, '', session), consul.remove(key))
      const [after] = await applied(consul.set(`${key}/other`, '2'))
      expect((after?.modified ?? 0n) - (before?.modified ?? 0n)).toBeLessThan(20n)
      await applied(consul.remove(key))
    })
  })

  describe('a poll', () => {
    test('is answered when something below its prefix is written or deleted, with all that is there', async () => {
      const { signal } = new AbortController()
      fresh()
      await applied(consul.lock(`${key}/a`, 'a', session))
      const first = await consul.pollTree(client, `${key}/`, 0n, signal)
      expect([...first.keys]).toEqual([[`${key}/a`, first.index]])
      const polled = consul.pollTree(client, `${key}/`, first.index, signal)
      const names = consul.pollKeys(client, `${key}/`, first.index, signal)
      await applied(consul.set(`${key}/b`, 'b'))
      const second = await polled
      expect(second.index).toBeGreaterThan(first.index)
      expect(second.seen?.map(({ value }) => value)).toEqual(['a', 'b'])
      expect([...(await names).keys.keys()]).toEqual([`${key}/a`, `${key}/b`])
      const third = consul.pollTree(client, `${key}/`, second.index, signal)
      await applied(consul.remove(`${key}/a`), consul.remove(`${key}/b`))
      expect((await third).seen).toEqual([])
    })

    test('names are listed up to the next slash, each once', async () => {
      fresh()
      await applied(...['a/c', 'a/d', 'b%2f/c', 'e'].map((name) => consul.set(`${key}/${name}`, '')))
      expect(await consul.keysBelow(client, `${key}/`, true, call)).toEqual(
        ['a/', 'b%2f/', 'e'].map((name) => `${key}/${name}`),
      )
      expect(await consul.keysBelow(client, `${key}/b%2`, true, call)).toEqual([`${key}/b%2f/`])
    })
  })
})
