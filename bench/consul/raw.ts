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

/** Delete, blocking query, one check-and-set of the next: the line is an array in this process. */
export function pollFloor(hosts: readonly string[]): Taker {
  return {
    name: 'poll floor',
    async openTaking() {
      const { client, session, close } = await connected(hosts)
      const end = new AbortController()
      const transact = (...operations: readonly consul.Operation[]) =>
        client.transact(operations, neverCancelled)
      const waiting: (() => void)[] = []
      let isHeld = false
      await transact(consul.lock('floor/next', '0', session))
      const polling = (async () => {
        let index = 0n
        let wasThere = false
        while (!end.signal.aborted) {
          const polled = await consul.pollTree(client, 'floor/', index, end.signal).catch(() => null)
          if (polled === null) continue
          index = polled.index
          const isThere = polled.keys.has('floor/held')
          if (wasThere && !isThere) waiting.shift()?.()
          wasThere = isThere
        }
      })()
      return {
        async take() {
          if (isHeld) await new Promise<void>((resolve) => waiting.push(resolve))
          isHeld = true
          await transact(consul.lock('floor/held', '', session))
          return async () => {
            if (waiting.length === 0) isHeld = false
            await transact(consul.remove('floor/held'))
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
