/** A namespace of its own for every case, on a cluster of three members that many cases share. Time is real: etcd ignores every other. */
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { type EtcdCluster, fetchJson, startEtcd } from 'holdfast-lab/servers'
import { systemClock } from '../../src/base/clock.ts'
import { defaults } from '../../src/base/defaults.ts'
import { escapeName } from '../../src/base/names.ts'
import { openEtcd } from '../../src/engines/etcd/locks/assemble.ts'
import type { EtcdBackend } from '../../src/engines/etcd/locks/backend.ts'
import { Clients } from '../../src/testing/conformance/clients.ts'
import type { World } from '../../src/testing/describe-backend.ts'
import { Lateness } from './lateness.ts'

let worlds = 0
const RESOLUTION_MS = 1_500

/** The cluster is started by the first world that needs it. */
export class EtcdStage {
  #starting: Promise<{ readonly cluster: EtcdCluster; readonly lateness: Lateness }> | undefined

  #start() {
    this.#starting ??= (async () => {
      const cluster = await startEtcd({ members: 3 })
      const [{ url } = { url: '' }] = cluster.members
      const read = () => ask(url, 'kv/range', { key: base64('x') })
      // A step has several requests.
      return { cluster, lateness: new Lateness(RESOLUTION_MS / 5, read) }
    })()
    return this.#starting
  }

  async play(body: () => Promise<void>): Promise<void> {
    return (await this.#start()).lateness.play(body)
  }

  async stop(): Promise<void> {
    const started = await this.#starting
    started?.lateness[Symbol.dispose]()
    await started?.cluster.stop()
  }

  async world(): Promise<World<'fenced'>> {
    const { members } = (await this.#start()).cluster
    const space = `w${++worlds}`
    const spaceOf = (namespace: string = defaults.namespace) => `${space}/${namespace}`
    const own: EtcdBackend[] = []
    const hosts = members.map(({ url }) => url)
    const clients = new Clients(systemClock, async ({ namespace, ...options }, clock) => {
      // Clients begin at different members.
      hosts.push(hosts.shift() as string)
      const backend = await openEtcd({ ...options, hosts: [...hosts], clock, namespace: spaceOf(namespace) })
      own.push(backend)
      return backend
    })
    return {
      clock: systemClock,
      ttlMs: 6_000,
      resolutionMs: RESOLUTION_MS,
      passTime: (ms) => sleep(ms),
      client: (options) => clients.add(options),
      delayAnswers: (ms) => clients.delayAnswers(ms),
      deleteName: (name) => deleteName(hosts[0] as string, spaceOf(), name),
      countCommands: async () => own.reduce((sum, { statistics }) => sum + statistics.sent, 0),
      countConnections: async () =>
        process.getActiveResourcesInfo().filter((resource) => resource === 'TCPSocketWrap').length,
      restart: async () => {
        await Promise.all(members.map((member) => member.restart()))
      },
      close: async () => {
        await clients.close()
        await expectNothingForEver(hosts[0] as string, `holdfast/1/${escapeName(`${space}/`)}`)
      },
    }
  }
}

interface KeyValue {
  readonly key: string
  readonly lease?: string
}

/** Whatever a case has left goes when its lease does, but for data cells. Then it goes now. */
async function expectNothingForEver(host: string, prefix: string): Promise<void> {
  const range = { key: base64(prefix), range_end: base64(`${prefix}\u{10FFFF}`), keys_only: true }
  const { kvs = [] } = await ask<{ kvs?: KeyValue[] }>(host, 'kv/range', range)
  const immortal = kvs
    .filter(({ lease = '0' }) => lease === '0')
    .map(({ key }) => Buffer.from(key, 'base64').toString())
  assert.deepEqual(
    immortal.filter((key) => !key.endsWith('\0data')),
    [],
  )
  const leases = new Set(kvs.map(({ lease = '0' }) => lease).filter((lease) => lease !== '0'))
  await Promise.all([...leases].map((ID) => ask(host, 'lease/revoke', { ID }).catch(() => {})))
}

/** As an operator would with etcdctl. */
async function deleteName(host: string, namespace: string, name: string): Promise<void> {
  const key = `holdfast/1/${escapeName(namespace)}/n/${name}`
  await ask(host, 'kv/deleterange', { key: base64(`${key}\0`), range_end: base64(`${key}\x01`) })
}

function ask<T>(host: string, path: string, body: object): Promise<T> {
  return fetchJson<T>(`${host}/v3/${path}`, { method: 'POST', body: JSON.stringify(body) }, 10_000)
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}
