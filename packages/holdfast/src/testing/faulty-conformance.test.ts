/** While nothing goes wrong, a faulty backend is as good as the one that it wraps. */
import { describe, test } from 'vitest'
import { memoryExceptions, memoryWorld } from '../../test/conformance/memory-world.ts'
import { describeBackend } from './describe-backend.ts'
import { faultyBackend } from './faulty-backend.ts'

describeBackend({
  name: 'memory over a wire without faults',
  describe,
  test,
  createWorld: () => memoryWorld({ wrap: (backend) => faultyBackend(backend) }),
  except: memoryExceptions,
})
