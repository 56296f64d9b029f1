/** A namespace of its own for every case, on an ensemble of three members that many cases share. Time is real: sessions are the members'. */
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { startZooKeeper, type ZooKeeperEnsemble } from 'holdfast-lab/servers'
import { type Clock, systemClock } from '../../src/base/clock.ts'
import { defaults } from '../../src/base/defaults.ts'
import { openZooKeeper } from '../../src/engines/zookeeper/locks/assemble.ts'
import type { ZooKeeperBackend } from '../../src/engines/zookeeper/locks/backend.ts'
import { Keys } from '../../src/engines/zookeeper/locks/keys.ts'
import { Clients } from '../../src/testing/conformance/clients.ts'
import { call } from '../../src/testing/conformance/requests.ts'
import type { ClientOptions, World } from '../../src/testing/describe-backend.ts'
import { Operator } from '../zookeeper/rig.ts'
import { expectOneSession } from '../zookeeper/sessions.ts'
import { Lateness } from './lateness.ts'

let worlds = 0
const RESOLUTION_MS = 1_500

interface Started {
  readonly cluster: ZooKeeperEnsemble
  readonly operator: Operator
  readonly lateness: Lateness
}

/** The ensemble is started by the first world that needs it. */
export class ZooKeeperStage {
  #starting: Promise<Started> | undefined

  #start() {
    this.#starting ??= (async () => {
      // Cases hold some names for ten of their TTLs.
      const settings = { maxSessionTimeout: '120000', maxClientCnxns: '0' }
      const cluster = await startZooKeeper({ members: 3, settings })
      const operator = new Operator(cluster.members.map(({ host, port }) => `${host}:${port}`))
      // A step has several requests.
      return { cluster, operator, lateness: new Lateness(RESOLUTION_MS / 5, () => operator.data('/x')) }
    })()
    return this.#starting
  }

  async play(body: () => Promise<void>): Promise<void> {
    return (await this.#start()).lateness.play(body)
  }

  async stop(): Promise<void> {
    const started = await this.#starting
    if (started === undefined) return
    const { cluster, operator, lateness } = started
    lateness[Symbol.dispose]()
    await expectOneSession(cluster, (await operator.session()).id)
    await operator.close()
    await cluster.stop()
  }

  async world(): Promise<World<'fenced'>> {
    const { cluster, operator } = await this.#start()
    const space = `w${++worlds}`
    const spaceOf = (namespace: string = defaults.namespace) => `${space}/${namespace}`
    const spaces = new Set([spaceOf()])
    const own: ZooKeeperBackend[] = []
    const hosts = cluster.members.map(({ host, port }) => `${host}:${port}`)
    const sent = () => own.reduce((sum, { statistics }) => sum + statistics.sent, 0)
    // A session is attached over a connection that is made first.
    const leaving = async () => {
      const before = sent()
      do await new Promise((resolve) => setImmediate(resolve))
      while (sent() === before)
    }
    const create = async ({ namespace, ...options }: ClientOptions, clock: Clock) => {
      // Clients begin at different members.
      hosts.push(hosts.shift() as string)
      spaces.add(spaceOf(namespace))
      const identity = { ...options, namespace: spaceOf(namespace) }
      const backend = await openZooKeeper({ ...identity, hosts: [...hosts], acl: 'open', clock })
      own.push(backend)
      return backend
    }
    const clients = new Clients<'fenced'>(systemClock, create, (backend) => backend, leaving)
    return {
      clock: systemClock,
      ttlMs: 6_000,
      resolutionMs: RESOLUTION_MS,
      passTime: (ms) => sleep(ms),
      client: (options) => clients.add(options),
      delayAnswers: (ms) => clients.delayAnswers(ms),
      deleteName: async (name) => {
        const path = new Keys('', spaceOf()).name(name)
        for (const node of await operator.nodes(path)) await operator.delete(node)
      },
      countCommands: async () => sent(),
      countConnections: async () =>
        process.getActiveResourcesInfo().filter((resource) => resource === 'TCPSocketWrap').length,
      restart: async () => {
        await Promise.all(cluster.members.map((member) => member.restart()))
      },
      close: async () => {
        for (const each of spaces) await operator.endSessions(new Keys('', each).root)
        // Whoever finds that a changed capacity or a closed name is void deletes it.
        for (const backend of own) await backend.list('', { limit: 1_000 }, call()).catch(() => {})
        await clients.close()
        for (const each of spaces) await expectNothingForEver(operator, new Keys('', each))
      },
    }
  }
}

/** All nodes of a case go with its session, except data, and containers, which ZooKeeper deletes. */
export async function expectNothingForEver(operator: Operator, keys: Keys, mayStay = /^$/): Promise<void> {
  const left = (await operator.nodes(keys.root)).filter((path) => {
    const own = path.slice(keys.root.length)
    return !/^\/[san]$|^\/n\/[^/]+(\/data)?$/.test(own) && !mayStay.test(own)
  })
  assert.deepEqual(left, [])
}
