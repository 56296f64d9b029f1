import { describe, test } from 'vitest'
import { describeBackend } from '../../src/testing/describe-backend.ts'
import { weakenWaiting } from '../../src/testing/weaken-waiting.ts'
import { bare } from './bare.ts'
import { consensusLike } from './consensus-like.ts'
import { memoryExceptions, memoryWorld } from './memory-world.ts'

describeBackend({
  name: 'memory',
  describe,
  test,
  createWorld: () => memoryWorld(),
  except: memoryExceptions,
})

describeBackend({
  name: 'memory weakened to poll',
  describe,
  test,
  createWorld: () => memoryWorld({ wrap: weakenWaiting }),
  lacks: ['queue'],
  except: memoryExceptions.filter(({ rule }) => rule !== 'C71' && rule !== 'C239'),
})

// And one that can do nothing but lock: whatever it lacks it refuses.
describeBackend({
  name: 'memory stripped to bare locks',
  describe,
  test,
  createWorld: () => memoryWorld({ wrap: bare }),
  lacks: ['fencing', 'queue', 'shared', 'permits', 'data', 'lock-delay', 'hold-at-least', 'watch'],
})

// And one with everything that the SPI allows to engines of the consensus kind.
describeBackend({
  name: 'memory like an engine of the consensus kind',
  describe,
  test,
  createWorld: () => memoryWorld({ wrap: consensusLike() }),
  lacks: ['causes'],
  except: memoryExceptions,
})
