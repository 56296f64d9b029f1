/** An ensemble, backends on it that end with the test, and what an operator does behind their back. */
import {
  type ZooKeeperOptions as ServerOptions,
  startZooKeeper,
  waitFor,
  type ZooKeeperEnsemble,
} from 'holdfast-lab/servers'
import { Cancellation } from '../../src/base/cancellation.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { type Session, ZooKeeperClient } from '../../src/engines/zookeeper/client/index.ts'
import { openZooKeeper, type ZooKeeperOptions } from '../../src/engines/zookeeper/locks/assemble.ts'
import type { ZooKeeperBackend } from '../../src/engines/zookeeper/locks/backend.ts'
import type { Keys } from '../../src/engines/zookeeper/locks/keys.ts'
import { parse, type StoredSession } from '../../src/engines/zookeeper/locks/records.ts'
import type { BackendSession } from '../../src/spi.ts'
import { call } from '../../src/testing/conformance/requests.ts'
import { expectOneSession } from './sessions.ts'

let namespaces = 0

/** Acts on the nodes of an ensemble, as an operator would with zkCli. */
export class Operator {
  readonly #client: ZooKeeperClient

  constructor(hosts: readonly string[]) {
    this.#client = new ZooKeeperClient('operator', { hosts, acl: 'open' }, systemClock, systemRandom)
  }

  session(): Promise<Session> {
    return this.#client.shared(call())
  }

  /** All nodes below a path, without it. After a commit, so nothing is missing. */
  async nodes(path: string): Promise<string[]> {
    const session = await this.session()
    await session.ask({ op: 'create', path: '/operator' }, call())
    await session.ask({ op: 'setData', path: '/operator', data: '' }, call())
    const below = async (parent: string): Promise<string[]> => {
      const reply = await session.ask({ op: 'getChildren', path: parent }, call())
      const paths = reply.ok ? reply.children.map((child) => `${parent}/${child}`) : []
      return (await Promise.all(paths.map(async (each) => [each, ...(await below(each))]))).flat()
    }
    return (await below(path)).sort()
  }

  async delete(path: string): Promise<void> {
    await (await this.session()).ask({ op: 'delete', path }, call())
  }

  async data(path: string): Promise<string | undefined> {
    const reply = await (await this.session()).ask({ op: 'getData', path }, call())
    return reply.ok ? reply.data : undefined
  }

  /** Ends the sessions of a namespace, as if their time were over. */
  async endSessions(root: string): Promise<void> {
    for (const path of await this.nodes(`${root}/s`)) await this.#end(path)
  }

  endSession(keys: Keys, id: string): Promise<void> {
    return this.#end(keys.session(id))
  }

  close(): Promise<void> {
    return this.#client.close()
  }

  /** A client of the session that waits takes it back when its connection is lost. */
  async #end(path: string): Promise<void> {
    await waitFor('the session to end', async () => {
      const data = await this.data(path)
      if (data === undefined) return true
      const { zooKeeper, ttlMs } = parse<StoredSession>(data)
      await this.#client.attach(BigInt(zooKeeper), ttlMs).end(call())
      return true
    })
  }
}

export class Rig implements AsyncDisposable {
  readonly cluster: ZooKeeperEnsemble
  readonly operator: Operator
  readonly namespace = `rig-${++namespaces}`
  readonly #backends: ZooKeeperBackend[] = []

  private constructor(cluster: ZooKeeperEnsemble) {
    this.cluster = cluster
    this.operator = new Operator(this.hosts)
  }

  static async start(options: ServerOptions = {}): Promise<Rig> {
    return new Rig(await startZooKeeper(options))
  }

  get hosts(): string[] {
    return this.cluster.members.map(({ host, port }) => `${host}:${port}`)
  }

  get root(): string {
    return `/holdfast/1/${this.namespace}`
  }

  async backend(options: Partial<ZooKeeperOptions> = {}): Promise<ZooKeeperBackend> {
    const { hosts, namespace } = this
    const backend = await openZooKeeper({ hosts, acl: 'open', namespace, ...options })
    this.#backends.push(backend)
    return backend
  }

  /** Claims, attempts and sessions that are there now, and whatever else may not stay behind. */
  async remains(): Promise<string[]> {
    const { root } = this
    const mayStay = new RegExp(`^${root}/([san]|n/[^/]+|n/[^/]+/data)$`)
    const nodes = await waitFor('an answer', () => this.operator.nodes(root).catch(() => null))
    return nodes.filter((path) => !mayStay.test(path))
  }

  /** Every member follows a leader, and commits. */
  async settled(): Promise<void> {
    for (const host of this.hosts) {
      const operator = new Operator([host])
      await waitFor(`a commit at ${host}`, () =>
        operator.nodes('/operator').then(
          () => true,
          () => null,
        ),
      )
      await operator.close()
    }
  }

  /** Ends the backends of a test. Sessions that it has left open are ended at the server. */
  async clear(): Promise<void> {
    for (const backend of this.#backends.splice(0)) await backend[Symbol.asyncDispose]()
    await this.operator.endSessions(this.root)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.clear()
    await expectOneSession(this.cluster, (await this.operator.session()).id)
    await this.operator.close()
    await this.cluster.stop()
  }
}

export function openSession(
  backend: ZooKeeperBackend,
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
