/** A cluster, backends on it that end with the test, and what an operator does behind their back. */

import {
  type EtcdCluster,
  fetchJson,
  type EtcdOptions as ServerOptions,
  startEtcd,
  waitFor,
} from 'holdfast-lab/servers'
import { Cancellation } from '../../src/base/cancellation.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { type EtcdOptions, openEtcd } from '../../src/engines/etcd/locks/assemble.ts'
import type { EtcdBackend } from '../../src/engines/etcd/locks/backend.ts'
import type { BackendSession } from '../../src/spi.ts'
import { call } from '../../src/testing/conformance/requests.ts'

let namespaces = 0

export class Rig implements AsyncDisposable {
  readonly cluster: EtcdCluster
  readonly #backends: EtcdBackend[] = []
  readonly #namespace = `rig-${++namespaces}`

  private constructor(cluster: EtcdCluster) {
    this.cluster = cluster
  }

  static async start(options: ServerOptions = {}): Promise<Rig> {
    return new Rig(await startEtcd(options))
  }

  get hosts(): string[] {
    return this.cluster.members.map(({ url }) => url)
  }

  async backend(options: Partial<EtcdOptions> = {}): Promise<EtcdBackend> {
    const backend = await openEtcd({ hosts: this.hosts, namespace: this.#namespace, ...options })
    this.#backends.push(backend)
    return backend
  }

  /** etcd's HTTP gateway, as an operator would use etcdctl. */
  operate<T>(path: string, body: object, host: string = this.hosts[0] ?? ''): Promise<T> {
    return fetchJson<T>(`${host}/v3/${path}`, { method: 'POST', body: JSON.stringify(body) }, 10_000)
  }

  /** The keys that are there now, with their leases. */
  async keys(host?: string): Promise<{ key: string; lease: string }[]> {
    const range = { key: base64('holdfast/'), range_end: base64('holdfast0'), keys_only: true }
    // During an election it is refused.
    const { kvs = [] } = await waitFor('a leader', () =>
      this.operate<{ kvs?: { key: string; lease?: string }[] }>('kv/range', range, host).catch(() => null),
    )
    return kvs.map(({ key, lease = '0' }) => ({ key: Buffer.from(key, 'base64').toString(), lease }))
  }

  async deleteKeys(isMeant: (key: string) => boolean): Promise<void> {
    for (const { key } of await this.keys())
      if (isMeant(key)) await this.operate('kv/deleterange', { key: base64(key) })
  }

  /** Writes until etcd refuses it, because its quota (`--quota-backend-bytes`) is reached. */
  async fill(): Promise<void> {
    const [key, value] = [base64('filler'), base64('x'.repeat(64 * 1_024))]
    for (;;) {
      const isRefused = await this.operate('kv/put', { key, value }).then(
        () => false,
        (error: unknown) => /database space exceeded/.test(String(error)) || Promise.reject(error),
      )
      if (isRefused) return
    }
  }

  /** Ends the backends of a test. Sessions that it has left open are ended at the server. */
  async clear(): Promise<void> {
    for (const backend of this.#backends.splice(0)) await backend[Symbol.asyncDispose]()
    const leases = new Set((await this.keys()).map(({ lease }) => lease))
    for (const ID of leases) if (ID !== '0') await this.operate('lease/revoke', { ID }).catch(() => {})
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const backend of this.#backends.splice(0)) await backend[Symbol.asyncDispose]()
    await this.cluster.stop()
  }
}

export function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}

export function openSession(
  backend: EtcdBackend,
  ttlMs = 30_000,
  holder = 'tester',
): Promise<BackendSession<'fenced'>> {
  return backend.openSession({ id: systemRandom.id() + systemRandom.id(), ttlMs, holder }, call())
}

/** A call that is given up after so long. */
export function limitedCall(ms: number): Cancellation {
  const cancellation = new Cancellation()
  setTimeout(() => cancellation.cancel(new Error(`given up after ${ms} ms`)), ms)
  return cancellation
}
