import { type PooledPostgres, startPooledPostgres, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { libraries } from '../../../../test/postgres/clients.ts'
import { type GuardSite, guardSite } from '../../../../test/postgres/guard-world.ts'
import { describeGuard } from '../../../testing/describe-guard.ts'

describe.runIf(wanted('postgres') && wanted('pgbouncer'))('postgresGuard', () => {
  let server: PooledPostgres
  beforeAll(async () => {
    server = await startPooledPostgres()
  })
  afterAll(() => server.stop())

  for (const library of libraries)
    for (const way of ['directly', 'through a pooler'] as const)
      describe(`${library.name} ${way}`, () => {
        let site: GuardSite
        beforeAll(() => {
          const url = way === 'directly' ? server.postgres.url : server.url
          const schema = `g_${library.name === 'pg' ? 'pg' : 'js'}_${way.slice(0, 3)}`.trim()
          site = guardSite(library, url, schema, way === 'directly')
        })
        afterAll(() => site[Symbol.asyncDispose]())

        describeGuard({
          name: `postgresGuard (${library.name}, ${way})`,
          describe,
          test,
          createWorld: () => site.world(),
        })
      })
})
