/**
 * A lock on etcd with nothing around it: a transaction that creates the key on a shared lease, and a delete. It has no owner, no queue
 * and no renewal. The connection is the same as ours, so that the difference is what Holdfast adds.
 */
import { Agent, request } from 'node:http'
import { systemClock } from '../../packages/holdfast/src/base/clock.ts'
import {
  absent,
  always,
  EtcdClient,
  methods,
  onCondition,
  put,
  remove,
  Watches,
} from '../../packages/holdfast/src/engines/etcd/client/index.ts'
import { neverCancelled } from '../../packages/holdfast/src/kit/backend-kit.ts'
import type { Taker } from '../subject.ts'

export const ttlMs = 15_000

async function connected(hosts: readonly string[]) {
  const client = new EtcdClient('etcd', { hosts }, systemClock)
  const ID = Math.floor(Math.random() * 2 ** 52)
  const alive = setInterval(() => client.ask(methods.leaseKeepAlive, { ID }, neverCancelled), ttlMs / 3)
  await client.ask(methods.leaseGrant, { ID, TTL: ttlMs / 1_000 }, neverCancelled)
  return {
    client,
    create: (key: string) =>
      client.ask(methods.txn, onCondition([absent(key)], [put(key, 'held', ID)]), neverCancelled),
    remove: (key: string) => client.ask(methods.txn, always([remove(key)]), neverCancelled),
    async close() {
      await client.ask(methods.leaseRevoke, { ID }, neverCancelled)
      // Until here it has also kept the process alive, which the connection does not.
      clearInterval(alive)
      client.close()
    },
  }
}

export function rawEtcd(hosts: readonly string[]): Taker {
  return {
    name: 'raw',
    async openTaking() {
      const raw = await connected(hosts)
      return {
        async take(name) {
          const key = `raw/${name}`
          const { succeeded } = await raw.create(key)
          return succeeded ? () => raw.remove(key) : null
        },
        close: raw.close,
      }
    },
  }
}

/** The same two operations over etcd's HTTP/JSON gateway. */
export function rawGateway(hosts: readonly string[]): Taker {
  return {
    name: 'raw over the HTTP gateway',
    async openTaking() {
      const agent = new Agent({ keepAlive: true })
      const post = (path: string, body: object) => postJson(`${hosts[0]}/v3/${path}`, body, agent)
      // So long that it needs no keep-alive.
      const { ID } = await post('lease/grant', { TTL: 3_600 })
      return {
        async take(name) {
          const key = Buffer.from(`gateway/${name}`).toString('base64')
          const { succeeded } = await post('kv/txn', {
            compare: [{ key, target: 'CREATE', create_revision: 0 }],
            success: [{ request_put: { key, value: 'aGVsZA==', lease: ID } }],
          })
          return succeeded ? () => post('kv/deleterange', { key }) : null
        },
        async close() {
          await post('lease/revoke', { ID })
          agent.destroy()
        },
      }
    },
  }
}

function postJson(
  url: string,
  body: object,
  agent: Agent,
): Promise<{ readonly ID?: string; readonly succeeded?: boolean }> {
  return new Promise((resolve, reject) => {
    const asked = request(url, { method: 'POST', agent }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (chunk) => {
        text += chunk
      })
      response.on('end', () => resolve(JSON.parse(text)))
    })
    asked.on('error', reject)
    asked.end(JSON.stringify(body))
  })
}

/** Delete, event, one confirming transaction: the line is an array in this process. */
export function watchFloor(hosts: readonly string[]): Taker {
  return {
    name: 'watch floor',
    async openTaking() {
      const raw = await connected(hosts)
      const watches = new Watches(raw.client, neverCancelled, systemClock)
      const waiting: (() => void)[] = []
      let isHeld = false
      watches.add(
        { key: 'floor', filters: [0] },
        { onResponse: ({ events }) => events.length > 0 && waiting.shift()?.(), onLost: () => {} },
      )
      return {
        async take() {
          if (isHeld) await new Promise<void>((resolve) => waiting.push(resolve))
          isHeld = true
          await raw.create('floor')
          return async () => {
            if (waiting.length === 0) isHeld = false
            await raw.remove('floor')
          }
        },
        async close() {
          watches.close()
          await raw.close()
        },
      }
    },
  }
}
