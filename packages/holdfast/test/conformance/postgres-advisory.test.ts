import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { atOnce } from '../../src/testing/conformance/at-once.ts'
import { backendCases, type DeclaredException, describeBackend } from '../../src/testing/describe-backend.ts'
import { advisoryLibraries as libraries, withPg } from '../postgres/clients.ts'
import { postgresAdvisorySite, type Site } from './postgres-advisory-world.ts'

// Many cases share a server, which one of them restarts; that one has a server of its own.
const needsRestart = new Set(['C50'])
const CASES_AT_ONCE = 32
// A session is a connection, and no other process can go on with it. A wait in the server would occupy a connection.
const lacks = ['queue', 'permits', 'data', 'lock-delay', 'hold-at-least', 'watch', 'attach'] as const

const attaching = 'a session is a connection, and no other process can go on with it'
const deleting = 'only the session itself can free its lock, short of ending its connection'
const exceptions: readonly DeclaredException[] = [
  ...['C7', 'C8'].map((rule) => ({
    rule,
    why: attaching,
  })),
  ...['C51', 'C149', 'C150', 'C220', 'C225'].map((rule) => ({
    rule,
    lacksHook: 'deleteName' as const,
    why: deleting,
  })),
]

describe.runIf(wanted('postgres'))('postgres-advisory', () => {
  const sites = new Map<string, Site>()
  let server: Server
  beforeAll(async () => {
    server = await startPostgres({ settings: { max_connections: '800' } })
    for (const library of libraries) sites.set(library.name, postgresAdvisorySite(library, server.url))
  })
  afterAll(async () => {
    for (const site of sites.values()) await site[Symbol.asyncDispose]()
    await server?.stop()
  })

  const each = atOnce((name, body) => test(name, body), CASES_AT_ONCE)
  for (const { name } of libraries) {
    describeBackend({
      name: `postgres-advisory with ${name}`,
      describe,
      test: each,
      lacks,
      cases: backendCases().filter(({ rule }) => !needsRestart.has(rule)),
      createWorld: () => (sites.get(name) as Site).world(),
      except: exceptions,
    })
  }
})

describe.runIf(wanted('postgres'))('postgres-advisory, restarted', () => {
  describeBackend({
    name: 'postgres-advisory that is restarted',
    describe,
    test,
    cases: backendCases().filter(({ rule }) => needsRestart.has(rule)),
    lacks,
    async createWorld() {
      const server = await startPostgres()
      const site = postgresAdvisorySite(withPg, server.url)
      const world = await site.world({ restart: () => server.restart() })
      const close = async () => {
        await world.close()
        await site[Symbol.asyncDispose]()
        await server.stop()
      }
      return { ...world, close }
    },
  })
})
