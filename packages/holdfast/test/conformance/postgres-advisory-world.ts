/** A namespace of its own for every case, on a server that many cases share, in real time. */
import { setTimeout as sleep } from 'node:timers/promises'
import { systemClock } from '../../src/base/clock.ts'
import { defaults } from '../../src/base/defaults.ts'
import { openPostgresAdvisory } from '../../src/engines/postgres/advisory/assemble.ts'
import type { PostgresAdvisoryBackend } from '../../src/engines/postgres/advisory/backend.ts'
import type { PgPool } from '../../src/engines/postgres/client/index.ts'
import { Clients } from '../../src/testing/conformance/clients.ts'
import type { World } from '../../src/testing/describe-backend.ts'
import type { ClientLibrary, OpenedClient } from '../postgres/clients.ts'

export interface WorldOptions {
  readonly restart?: () => Promise<void>
  readonly ttlMs?: number
}

/** How clients get to a server. */
export interface Site extends AsyncDisposable {
  world(options?: WorldOptions): Promise<World<'fenced'>>
}

let worlds = 0

export function postgresAdvisorySite(library: ClientLibrary<PgPool>, url: string): Site {
  const opened: OpenedClient<PgPool> = library.open(url, { max: 12 })
  return {
    async world({ restart, ttlMs = 6_000 } = {}) {
      const space = `w${++worlds}`
      const spaceOf = (namespace: string = defaults.namespace) => `${space}/${namespace}`
      const backends: PostgresAdvisoryBackend[] = []
      const clients = new Clients(systemClock, async ({ namespace, ...options }, clock) => {
        const own = { client: opened.client, clock, namespace: spaceOf(namespace) }
        const backend = await openPostgresAdvisory({ ...options, ...own })
        backends.push(backend)
        return backend
      })
      return {
        clock: systemClock,
        ttlMs,
        resolutionMs: 1_200,
        passTime: (ms) => sleep(ms),
        client: (options) => clients.add(options),
        delayAnswers: (ms) => clients.delayAnswers(ms),
        async countCommands() {
          return backends.reduce((sum, { statistics }) => sum + statistics.statements, 0)
        },
        ...(restart && { restart }),
        close: () => clients.close(),
      }
    },
    [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
  }
}
