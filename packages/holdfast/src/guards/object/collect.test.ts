import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { mapStore } from '../../../test/object/map-store.ts'
import { makeFence } from '../../base/fence.ts'
import { objectGuard } from '../object.ts'

const fence = (token: bigint, name: string) =>
  makeFence({ issuer: 'i', name, mode: 'exclusive', token, grant: `g${token}` })

describe('collect', () => {
  test('G5 takes nothing of a name that lies below another, whose head refuses older holders', async () => {
    const store = mapStore()
    const guard = objectGuard({ store })
    await guard.put(fence(10n, 'conf.d/10-default'), 'of another name')
    await guard.put(fence(20n, 'conf'), 'old')
    await guard.put(fence(21n, 'conf'), 'new')
    assert.equal(await guard.collect('conf'), 1)
    const stale = objectGuard({ store }).put(fence(9n, 'conf.d/10-default'), 'stale')
    await assert.rejects(stale, { code: 'FENCE_STALE' })
    assert.equal(Buffer.from((await guard.get(fence(21n, 'conf'))) ?? '').toString(), 'new')
  })
})
