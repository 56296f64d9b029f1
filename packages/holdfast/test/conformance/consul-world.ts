/** A namespace of its own for every case, on a cluster of three servers that many cases share. Time is real: Consul ignores every other. */
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { type ConsulCluster, startConsul } from 'holdfast-lab/servers'
import { systemClock } from '../../src/base/clock.ts'
import { defaults } from '../../src/base/defaults.ts'
import { escapeName } from '../../src/base/names.ts'
import { openConsul } from '../../src/engines/consul/locks/assemble.ts'
import type { ConsulBackend } from '../../src/engines/consul/locks/backend.ts'
import { Clients } from '../../src/testing/conformance/clients.ts'
import type { World } from '../../src/testing/describe-backend.ts'
import { Operator } from '../consul/rig.ts'
import { Lateness } from './lateness.ts'

let worlds = 0
const RESOLUTION_MS = 800

interface Started {
  readonly hosts: readonly string[]
  /** The shortest that the server allows, but 2 s at least. */
  readonly ttlMs: number
  readonly operator: Operator
  readonly cluster: ConsulCluster | undefined
  readonly lateness: Lateness
}

/** The cluster is started by the first world that needs it, or it is the server that the environment lends. */
export class ConsulStage {
  readonly #lent: string | undefined
  #starting: Promise<Started> | undefined

  /** `lent`: the address of a server that runs already. */
  constructor(lent?: string) {
    this.#lent = lent
  }

  #start(): Promise<Started> {
    this.#starting ??= (async () => {
      const cluster = this.#lent === undefined ? await startConsul({ members: 3 }) : undefined
      const hosts = cluster?.members.map(({ url }) => url) ?? [this.#lent ?? '']
      const operator = new Operator(() => hosts)
      await using backend = await openConsul({ hosts })
      const ttlMs = Math.max(2_000, backend.info.ttlMs.min)
      // A step has several requests.
      const lateness = new Lateness(RESOLUTION_MS / 4, () => operator.ask('kv/x?consistent').catch(() => {}))
      return { hosts, ttlMs, operator, cluster, lateness }
    })()
    return this.#starting
  }

  async play(body: () => Promise<void>): Promise<void> {
    return (await this.#start()).lateness.play(body)
  }

  async stop(): Promise<void> {
    const started = await this.#starting
    started?.lateness[Symbol.dispose]()
    await started?.cluster?.stop()
  }

  async world(): Promise<World<'fenced'>> {
    const { hosts: all, ttlMs, operator, cluster } = await this.#start()
    const space = `w${process.pid}-${++worlds}`
    const spaceOf = (namespace: string = defaults.namespace) => `${space}/${namespace}`
    const own: ConsulBackend[] = []
    const hosts = [...all]
    const clients = new Clients(systemClock, async ({ namespace, ...options }, clock) => {
      // Clients begin at different members.
      hosts.push(hosts.shift() as string)
      const backend = await openConsul({
        ...options,
        hosts: [...hosts],
        clock,
        namespace: spaceOf(namespace),
      })
      own.push(backend)
      return backend
    })
    return {
      clock: systemClock,
      ttlMs,
      resolutionMs: RESOLUTION_MS,
      passTime: (ms) => sleep(ms),
      client: (options) => clients.add(options),
      delayAnswers: (ms) => clients.delayAnswers(ms),
      deleteName: (name) => operator.deleteKeys(`holdfast/1/${escapeName(spaceOf())}/n/${escapeName(name)}/`),
      countCommands: async () => own.reduce((sum, { statistics }) => sum + statistics.sent, 0),
      countConnections: async () =>
        process.getActiveResourcesInfo().filter((resource) => resource === 'TCPSocketWrap').length,
      ...(cluster && {
        restart: async () => {
          await Promise.all(cluster.members.map((member) => member.restart()))
        },
      }),
      close: async () => {
        await clients.close()
        await expectNothingForEver(operator, `holdfast/1/${escapeName(`${space}/`)}`)
      },
    }
  }
}

/** Whatever a case has left goes when its session does, but for data cells and ids. Then it goes now. */
async function expectNothingForEver(operator: Operator, prefix: string): Promise<void> {
  const keys = await operator.keys(prefix)
  const immortal = keys.filter(({ Session }) => Session === undefined).map(({ Key }) => Key)
  assert.deepEqual(
    // A tombstone goes when the next client comes.
    immortal.filter((key) => !/\/(data|id|delay\/[^/]+)$/.test(key)),
    [],
  )
  const sessions = new Set(keys.flatMap(({ Session }) => Session ?? []))
  await Promise.all([...sessions].map((id) => operator.put(`session/destroy/${id}`)))
  await operator.deleteKeys(prefix)
}
