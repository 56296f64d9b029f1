/**
 * A lock on ZooKeeper with nothing around it: an ephemeral sequential node, and its deletion. It has no owner, no queue, no token and no
 * renewal. The client is the same as ours, so that the difference is what Holdfast adds.
 */
import { systemClock } from '../../packages/holdfast/src/base/clock.ts'
import { systemRandom } from '../../packages/holdfast/src/base/ids.ts'
import { type Session, ZooKeeperClient } from '../../packages/holdfast/src/engines/zookeeper/client/index.ts'
import { neverCancelled } from '../../packages/holdfast/src/kit/backend-kit.ts'
import type { Taker } from '../subject.ts'

export const ttlMs = 15_000

async function connected(hosts: readonly string[]) {
  // The connection does not keep the process alive.
  const alive = setInterval(() => {}, ttlMs)
  const client = new ZooKeeperClient('zookeeper', { hosts, acl: 'open' }, systemClock, systemRandom)
  await client.makePath('/raw', neverCancelled)
  const session = await client.shared(neverCancelled)
  return {
    session,
    async close() {
      await client.close()
      clearInterval(alive)
    },
  }
}

async function create(session: Session, path: string): Promise<string> {
  const created = await session.ask({ op: 'create', path, mode: 'ephemeral-sequential' }, neverCancelled)
  if (!created.ok) throw new Error(`a create was refused (${created.code})`)
  return created.path
}

export function rawZooKeeper(hosts: readonly string[]): Taker {
  return {
    name: 'raw',
    async openTaking() {
      const { session, close } = await connected(hosts)
      return {
        async take(name) {
          const path = await create(session, `/raw/${name.replaceAll('/', '%')}-`)
          return () => session.ask({ op: 'delete', path }, neverCancelled)
        },
        close,
      }
    },
  }
}

/** Its holder writes it once, which is an event as well. */
function gone(session: Session, path: string): Promise<void> {
  return new Promise((resolve) => {
    const watch = () => {
      const tell = (told: string) => (told === 'changed' ? watch() : resolve())
      session.watch({ op: 'getData', path }, tell, neverCancelled).then(
        (reply) => reply.ok || resolve(),
        // It was closed while it waits.
        () => {},
      )
    }
    watch()
  })
}

/** Delete, event, list, write: the next in line finds that nothing is before it, and writes its own node. */
export function watchFloor(hosts: readonly string[]): Taker {
  return {
    name: 'watch floor',
    async openTaking() {
      const { session, close } = await connected(hosts)
      const ask = (path: string) => session.ask({ op: 'getChildren', path }, neverCancelled)
      await session.ask({ op: 'create', path: '/raw/floor' }, neverCancelled)
      let last: string | undefined
      return {
        async take() {
          // The answers come in the order of the nodes.
          const path = await create(session, '/raw/floor/n-')
          const before = last
          last = path
          if (before !== undefined) await gone(session, before)
          await ask('/raw/floor')
          await session.ask({ op: 'setData', path, data: 'held' }, neverCancelled)
          return () => session.ask({ op: 'delete', path }, neverCancelled)
        },
        close,
      }
    },
  }
}
