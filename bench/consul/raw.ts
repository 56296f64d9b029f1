/**
 * A lock on Consul with nothing around it: a key that is acquired for a shared session, and deleted. It has no token, no queue and no
 * renewal. The client is the same as ours, so that the difference is what Holdfast adds.
 */
import { systemClock } from '../../packages/holdfast/src/base/clock.ts'
import * as consul from '../../packages/holdfast/src/engines/consul/client/index.ts'
import { neverCancelled } from '../../packages/holdfast/src/kit/backend-kit.ts'
import type { Taker } from '../subject.ts'

export const ttlMs = 15_000

async function connected(hosts: readonly string[]) {
  const client = new consul.ConsulClient('consul', { hosts }, systemClock)
  let session = ''
  // It also keeps the process alive, which the connections do not.
  const alive = setInterval(() => consul.renewSession(client, session, neverCancelled), ttlMs / 3)
  session = await consul.createSession(client, { ttlMs, behavior: 'delete' }, neverCancelled)
  const kv = (method: 'PUT' | 'DELETE', path: string) =>
    client.ask(
      { method, path: `/v1/kv/${path}`, isRead: false, read: (_status, body) => body === true },
      neverCancelled,
    )
  return {
    client,
    session,
    acquire: (key: string) => kv('PUT', `${key}?acquire=${session}`),
    remove: (key: string) => kv('DELETE', key),
    async close() {
      await consul.destroySession(client, session, neverCancelled)
      clearInterval(alive)
      client.close()
    },
  }
}

export function rawConsul(hosts: readonly string[]): Taker {
  return {
    name: 'raw',
    async openTaking() {
      const raw = await connected(hosts)
      return {
        async take(name) {
          const key = `raw/${encodeURIComponent(name)}`
          return (await raw.acquire(key)) ? () => raw.remove(key) : null
        },
        close: raw.close,
      }
    },
  }
}

/**
 * Delete, blocking query, one check-and-set of the next. A waiter locks a key of its own when it comes, as ZooKeeper's floor creates a
 * node; who is next is known in this process.
 */
export function pollFloor(hosts: readonly string[]): Taker {
  return {
    name: 'poll floor',
    async openTaking() {
      const { client, session, close } = await connected(hosts)
      const end = new AbortController()
      const transact = (...operations: readonly consul.Operation[]) =>
        client.transact(operations, neverCancelled)
      const waiting: { readonly key: string; readonly go: () => void }[] = []
      let held: string | undefined
      let isOver = false
      let taken = 0
      // So that there is always something to poll.
      await transact(consul.lock('floor/stays', '', session))
      const polling = (async () => {
        let index = 0n
        while (!end.signal.aborted) {
          const polled = await consul.pollTree(client, 'floor/', index, end.signal).catch(() => null)
          if (polled === null) continue
          index = polled.index
          if (!isOver || held === undefined || polled.keys.has(held)) continue
          isOver = false
          const next = waiting.shift()
          held = next?.key
          next?.go()
        }
      })()
      return {
        async take() {
          const key = `floor/${++taken}`
          const { entries } = await transact(consul.lock(key, '', session))
          if (held === undefined) held = key
          else await new Promise<void>((go) => waiting.push({ key, go }))
          await transact(consul.cas(key, 'granted', entries?.[0]?.modified ?? 0n))
          return async () => {
            isOver = true
            await transact(consul.remove(key))
          }
        },
        async close() {
          end.abort()
          await close()
          await polling
        },
      }
    },
  }
}
