import { wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { describeBackend } from '../../src/testing/describe-backend.ts'
import { libraryNamed } from '../redis/clients.ts'
import { otherClient } from './other-clients.ts'
import { RedisStage } from './redis-world.ts'

describe.runIf(wanted('redis')).each(['ioredis 6', 'node-redis 6'])('redis cluster with %s', (library) => {
  const stage = new RedisStage({
    library: libraryNamed(library),
    isCluster: true,
    backend: { fencing: 'clock-backed' },
  })
  beforeAll(() => stage.start())
  afterAll(() => stage.stop())
  describeBackend({
    name: `redis cluster with ${library}`,
    describe,
    test,
    createWorld: () => stage.world(),
    lacks: ['session-claims', 'watch'],
    ...(library !== 'ioredis 6' && otherClient),
    except: [
      {
        rule: 'C50',
        lacksHook: 'restart',
        why: 'the members of a Cluster take seconds to find each other again; it is shown on one server',
      },
    ],
  })
})
