import { wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { backendCases, describeBackend } from '../../src/testing/describe-backend.ts'
import { libraryNamed } from '../redis/clients.ts'
import { RedisStage } from './redis-world.ts'

/** What depends on the client library: calls and their errors, messages, the order of things under load. */
const topics = new Set([
  'sessions',
  'exclusive locks',
  'waiting in line',
  'waiters come and go',
  'abandoning',
  'many at once',
])

describe.runIf(wanted('redis')).each(['ioredis 5', 'node-redis 5'])('redis with %s', (library) => {
  const stage = new RedisStage({ library: libraryNamed(library), backend: { fencing: 'clock-backed' } })
  beforeAll(() => stage.start())
  afterAll(() => stage.stop())
  describeBackend({
    name: `redis with ${library}`,
    describe,
    test,
    cases: backendCases().filter(({ topic }) => topics.has(topic)),
    createWorld: () => stage.world(),
    lacks: ['watch'],
  })
})
