import { wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { describeBackend } from '../../src/testing/describe-backend.ts'
import { libraryNamed } from '../redis/clients.ts'
import { RedisStage } from './redis-world.ts'

describe.runIf(wanted('redis'))('redis, unfenced', () => {
  const stage = new RedisStage({ library: libraryNamed('node-redis 6') })
  beforeAll(() => stage.start())
  afterAll(() => stage.stop())
  describeBackend({
    name: 'redis with node-redis 6, unfenced',
    describe,
    test,
    createWorld: () => stage.world(),
    lacks: ['fencing', 'session-claims'],
  })
})
