import { wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { describeBackend } from '../../src/testing/describe-backend.ts'
import { libraryNamed } from '../redis/clients.ts'
import { RedisStage } from './redis-world.ts'

describe.runIf(wanted('redis'))('redis, clock-backed', () => {
  const stage = new RedisStage({ library: libraryNamed('ioredis 6'), backend: { fencing: 'clock-backed' } })
  beforeAll(() => stage.start())
  afterAll(() => stage.stop())
  describeBackend({
    name: 'redis with ioredis 6, clock-backed',
    describe,
    test,
    createWorld: () => stage.world(),
    lacks: ['session-claims'],
  })
})
