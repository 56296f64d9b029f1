import { wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { describeBackend } from '../../src/testing/describe-backend.ts'
import { libraryNamed } from '../redis/clients.ts'
import { otherClient } from './other-clients.ts'
import { RedisStage } from './redis-world.ts'

describe.runIf(wanted('redis')).each(['ioredis 5', 'node-redis 5'])('redis with %s', (library) => {
  const stage = new RedisStage({ library: libraryNamed(library), backend: { fencing: 'clock-backed' } })
  beforeAll(() => stage.start())
  afterAll(() => stage.stop())
  describeBackend({
    name: `redis with ${library}`,
    describe,
    test,
    createWorld: () => stage.world(),
    lacks: ['session-claims'],
    ...otherClient,
  })
})
