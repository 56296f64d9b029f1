/** Faults that only a cluster of etcd can be given. */

import { callWith } from '../../../packages/holdfast/src/base/aborting.ts'
import { Cancellation } from '../../../packages/holdfast/src/base/cancellation.ts'
import { openEtcd } from '../../../packages/holdfast/src/engines/etcd/locks/assemble.ts'
import { createLocker } from '../../../packages/holdfast/src/locker/locker.ts'
import { fetchJson } from '../../servers/http.ts'
import type { EtcdCluster, Server } from '../../servers/index.ts'
import { GivenUp, waitFor } from '../../servers/wait.ts'
import { lockName } from '../messages.ts'
import type { Faults } from './engine.ts'

/** Of leases that are held while a member stands still. */
const HELD_TTL_MS = 6_000

/**
 * `member` comes first in `hosts`, so the watcher is connected to it. So is an innocent process: its lease must stay held, although
 * other names that it waits for are released at that moment.
 */
export async function freezingOne(
  member: Server,
  hosts: readonly string[],
): Promise<Faults['frozenMember'] & AsyncDisposable> {
  const backend = await openEtcd({ hosts })
  const end = new Cancellation()
  let [waiting, granted, grantedBefore] = [0, 0, 0]
  const watching = (async () => {
    for await (const { kind } of backend.watch(lockName, {}, end)) {
      if (kind === 'waiting') waiting++
      if (kind === 'acquired') granted++
    }
  })()
  await waitFor('the watcher watches', async () => backend.statistics.watches > 0 || null)
  const innocent = createLocker(backend, { ttlMs: HELD_TTL_MS })
  const elsewhere = await openEtcd({ hosts: hosts.slice(1) })
  const other = createLocker(elsewhere, { ttlMs: HELD_TTL_MS })
  const lease = await innocent.acquire('innocent')
  const others = Array.from({ length: 10 }, (_, index) => `innocent ${index}`)
  /** Since the moment of the call. */
  const staysHeld = async () => {
    let leastMs = lease.remainingMs
    await waitFor('the innocent lease is renewed', async () => {
      if (lease.state === 'lost') throw new GivenUp(`the innocent lease was lost: ${lease.signal.reason}`)
      const isRenewed = lease.remainingMs > leastMs
      leastMs = lease.remainingMs
      return isRenewed || null
    })
  }
  return {
    async waits() {
      const before = waiting
      await waitFor('a client waits', async () => {
        const found = await backend.inspect(lockName, callWith())
        return (found?.waiters.length ?? 0) > 0 || waiting > before || null
      })
    },
    async freeze() {
      const taken = await Promise.all(others.map((name) => other.acquire(name)))
      const waiters = others.map((name) => innocent.acquire(name))
      await waitFor('the innocent process waits, too', async () => {
        const found = await Promise.all(others.map((name) => backend.inspect(name, callWith())))
        return found.every((each) => each?.waiters.length) || null
      })
      grantedBefore = granted
      const released = Promise.all(taken.map((each) => each.release()))
      // It freezes while waiters look.
      await Promise.race(waiters)
      await member.pause()
      await released
      // A look that is given up makes the client leave its connection (T96, deaf watchers). The watch must not stay behind on it.
      const limited = new Cancellation()
      setTimeout(() => limited.cancel(new Error('given up')), 600)
      await backend.inspect(lockName, limited).catch(() => {})
      await staysHeld()
      await Promise.all((await Promise.all(waiters)).map((each) => each.release()))
      return `${member.name} stands still`
    },
    async isTold() {
      await waitFor('the watcher is told of a grant', async () => granted > grantedBefore || null)
      await staysHeld()
    },
    thaw: () => member.resume(),
    async [Symbol.asyncDispose]() {
      end.cancel(new Error('the scenario is over'))
      await watching.catch(() => {})
      await Promise.all([innocent.close(), other.close()])
      await elsewhere[Symbol.asyncDispose]()
      await backend[Symbol.asyncDispose]()
    },
  }
}

/** So much that a run of any length has space. */
const QUOTA_BYTES = 2 ** 21
export const fullArguments = ['--quota-backend-bytes', String(QUOTA_BYTES)]

export function filling({ members }: EtcdCluster): Faults['full'] {
  const ask = <T>(path: string, body: object, { url } = members[0] as Server) =>
    fetchJson<T>(`${url}/v3/${path}`, { method: 'POST', body: JSON.stringify(body) }, 10_000)
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  const filler = { key: base64('filler'), value: base64('x'.repeat(2 ** 17)) }
  return {
    async fill() {
      for (let isFull = false; !isFull; )
        await ask('kv/put', filler).catch((error: unknown) => {
          if (!/database space exceeded/.test(String(error))) throw error
          isFull = true
        })
      return 'etcd was full (alarm NOSPACE)'
    },
    async isFree() {
      const prefix = base64('holdfast/1/default/s/')
      const range = { key: prefix, range_end: base64('holdfast/1/default/s0'), count_only: true }
      const before = await ask<{ count?: string }>('kv/range', range)
      await waitFor('a session ends', async () => {
        const { count = '0' } = await ask<{ count?: string }>('kv/range', range)
        return Number(count) < Number(before.count ?? 0) || null
      })
    },
    /** As etcd's guide for operators says: compact, defragment, disarm. */
    async makeSpace() {
      const { header } = await ask<{ header: { revision: string } }>('kv/range', { key: filler.key })
      await ask('kv/compaction', { revision: header.revision, physical: true })
      for (const member of members) await ask('maintenance/defragment', {}, member)
      const { alarms = [] } = await ask<{ alarms?: object[] }>('maintenance/alarm', { action: 'GET' })
      for (const alarm of alarms) await ask('maintenance/alarm', { ...alarm, action: 'DEACTIVATE' })
    },
  }
}
