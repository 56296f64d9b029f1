/** Answers of a force release when some of the servers do not answer. */
import assert from 'node:assert/strict'
import { wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, test } from 'vitest'
import { type Nodes, startNodes } from '../../../../test/redlock/nodes.ts'
import { call, hold, RedlockStage, take } from '../../../../test/redlock/stage.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { operatorCall } from '../../../testing/conformance/operator.ts'

describe.runIf(wanted('redis'))('redlock: a force release', () => {
  let nodes: Nodes
  beforeAll(async () => {
    nodes = await startNodes()
  })
  afterEach(() => nodes.endClients())
  afterAll(() => nodes?.stop())

  test('T78 G11 a force release that ends a holder with a bare majority, one of whose nodes is down, does not say 0', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    await hold(session, 'warm')
    await nodes.flush()
    // Rivals stand on 3 and 4 while it is granted, and are gone later.
    await stage.rival('x', [3, 4])
    await hold(session, 'x')
    await nodes.flush()
    await stage.remove('x', [3, 4])
    const operator = await stage.backend()
    const other = await stage.session('bob')
    await hold(other, 'warm too')
    await nodes.flush()
    const outcome = await stage.whileFrozen([0], async () => {
      const seen = await stage.answered(operator.inspect('x', call()), [0])
      assert(seen !== null, 'it is shown as held')
      const ids = seen.holders.map(({ id }) => id)
      const forced = await stage.answered(
        operator.forceRelease('x', ids, 'stuck', operatorCall()).catch((error: unknown) => {
          assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
          return error.outcome
        }),
        [0],
      )
      const values = await stage.values('x', [1, 2, 3, 4])
      const taken = await stage.answered(take(other, 'x'), [0])
      return { forced, values, taken: taken.kind }
    })
    assert.deepEqual(outcome.values, [null, null, null, null])
    assert.equal(outcome.taken, 'granted')
    assert.equal(outcome.forced, 'unknown')
  })
})
