/** A cluster, backends on it that end with the test, and what an operator does behind their back. */

import assert from 'node:assert/strict'
import {
  type ConsulCluster,
  fetchJson,
  type ConsulOptions as ServerOptions,
  startConsul,
} from 'holdfast-lab/servers'
import { Cancellation } from '../../src/base/cancellation.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { FLAGS } from '../../src/engines/consul/client/index.ts'
import { type ConsulOptions, openConsul } from '../../src/engines/consul/locks/assemble.ts'
import type { ConsulBackend } from '../../src/engines/consul/locks/backend.ts'
import type { BackendSession } from '../../src/spi.ts'
import { call } from '../../src/testing/conformance/requests.ts'

let namespaces = 0

export class Rig implements AsyncDisposable {
  readonly cluster: ConsulCluster
  readonly operator: Operator
  readonly #backends: ConsulBackend[] = []
  readonly #namespace = `rig-${++namespaces}`

  private constructor(cluster: ConsulCluster) {
    this.cluster = cluster
    this.operator = new Operator(() => this.hosts)
  }

  static async start(options: ServerOptions = {}): Promise<Rig> {
    return new Rig(await startConsul(options))
  }

  get hosts(): string[] {
    return this.cluster.members.map(({ url }) => url)
  }

  async backend(options: Partial<ConsulOptions> = {}): Promise<ConsulBackend> {
    const backend = await openConsul({ hosts: this.hosts, namespace: this.#namespace, ...options })
    this.#backends.push(backend)
    return backend
  }

  /** Ends the backends of a test, and its open sessions at the server. All other keys go with a session, so they must be locked by one. */
  async clear(): Promise<void> {
    for (const backend of this.#backends.splice(0)) await backend[Symbol.asyncDispose]()
    const staying = (await this.operator.keys()).filter(
      ({ Flags, Session }) => Flags === FLAGS && Session === undefined,
    )
    const immortal = staying.map(({ Key }) => Key).filter((key) => !/\/(data|id|delay\/[^/]+)$/.test(key))
    await this.operator.endSessions()
    await this.operator.deleteKeys()
    assert.deepEqual(immortal, [])
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const backend of this.#backends.splice(0)) await backend[Symbol.asyncDispose]()
    await this.cluster.stop()
  }
}

export interface KeyOfConsul {
  readonly Key: string
  readonly Session?: string
  readonly Flags: number
  readonly Value: string | null
}

/** What a person does with `consul kv` and `curl`. */
export class Operator {
  readonly #hosts: () => readonly string[]

  constructor(hosts: () => readonly string[]) {
    this.#hosts = hosts
  }

  async ask<T>(path: string, init: RequestInit = {}, host?: string): Promise<T> {
    let failure: unknown
    for (const each of host === undefined ? this.#hosts() : [host])
      try {
        return await fetchJson<T>(`${each}/v1/${path}`, init, 10_000)
      } catch (error) {
        failure = error
      }
    throw failure
  }

  put<T = boolean>(path: string, body?: object, host?: string): Promise<T> {
    return this.ask<T>(path, { method: 'PUT', ...(body && { body: JSON.stringify(body) }) }, host)
  }

  /** For what is answered with nothing. */
  async tell(path: string, host: string, body?: object): Promise<void> {
    const init = { method: 'PUT', ...(body && { body: JSON.stringify(body) }) }
    const answer = await fetch(`${host}/v1/${path}`, { ...init, signal: AbortSignal.timeout(10_000) })
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`)
  }

  /** The keys that are there now. */
  async keys(prefix = 'holdfast/', host?: string): Promise<readonly KeyOfConsul[]> {
    return this.ask<KeyOfConsul[]>(`kv/${escaped(prefix)}?recurse&consistent`, {}, host).catch(
      (error: unknown) => {
        if (/: 404/.test(String(error))) return []
        throw error
      },
    )
  }

  async deleteKeys(prefix = 'holdfast/'): Promise<void> {
    await this.ask(`kv/${escaped(prefix)}?recurse`, { method: 'DELETE' })
  }

  async deleteKey(key: string): Promise<void> {
    await this.ask(`kv/${escaped(key)}`, { method: 'DELETE' })
  }

  /** The ids of our sessions. */
  async sessions(): Promise<readonly string[]> {
    const all = await this.ask<{ readonly ID: string; readonly Name: string }[]>('session/list?consistent')
    return all.filter(({ Name }) => Name === 'holdfast').map(({ ID }) => ID)
  }

  async endSessions(): Promise<void> {
    for (const id of await this.sessions()) await this.put(`session/destroy/${id}`)
  }
}

function escaped(key: string): string {
  return key.split('/').map(encodeURIComponent).join('/')
}

export function openSession(
  backend: ConsulBackend,
  ttlMs = 30_000,
  also: { readonly lockDelayMs?: number } = {},
): Promise<BackendSession<'fenced'>> {
  const id = systemRandom.id() + systemRandom.id()
  return backend.openSession({ id, ttlMs, holder: 'tester', ...also }, call())
}

/** A call that is given up after so long. */
export function limitedCall(ms: number): Cancellation {
  const cancellation = new Cancellation()
  setTimeout(() => cancellation.cancel(new Error(`given up after ${ms} ms`)), ms)
  return cancellation
}
