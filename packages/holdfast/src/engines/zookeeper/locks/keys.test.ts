/** The paths of nodes, and tokens. */
import { describe, expect, test } from 'vitest'
import { request } from '../../../testing/conformance/requests.ts'
import { Keys, LAST_SEQUENCE, tokenOf } from './keys.ts'

const keys = new Keys('/apps', 'team/jobs')

describe('paths', () => {
  test.each(['a/b', '..', '.', 'a b', '東京', '\u{e000}\u{ffff}', '%2f', 'zookeeper', 'x'.repeat(255)])(
    'the name %j is one node that ZooKeeper accepts, and comes back as it was',
    (name) => {
      const path = keys.of(name, 'data')
      expect(path).toMatch(/^\/apps\/holdfast\/1\/team%2fjobs\/n\/[A-Za-z0-9_:@%-]+\/data$/)
      expect(keys.parse(path)).toEqual({ name, child: 'data' })
    },
  )

  test('the name of a claim has all that the queue needs', () => {
    const asked = request('x', { mode: 'shared', weight: 1 })
    const { mode, weight, capacity, attempt } = asked
    const path = `${keys.claim(asked)}0000000042`
    expect(keys.parseClaim(path)).toEqual({
      ...{ key: path, name: 'x', mode, weight, capacity, attempt },
      id: attempt.slice(0, 22),
      order: 42n,
    })
  })

  test('other nodes are no claims', () => {
    for (const child of ['data', 'capacity', 'kept.1000.0000000001', 'exclusive.1.1.a.-000000001'])
      expect(keys.parseClaim(keys.of('x', child))).toBeNull()
    expect(keys.parse(keys.attempt('a'))).toBeNull()
    expect(keys.keptIn('x', ['kept.1000.0000000001', 'kept.x'])).toEqual([
      { key: keys.of('x', 'kept.1000.0000000001'), keepForMs: 1_000, order: 1n },
    ])
  })

  test('the path of a session does not show its id', () => {
    expect(keys.session('a secret')).not.toContain('secret')
    expect(keys.session('a secret')).not.toBe(keys.session('another'))
  })

  test('T35 a name starts anew long before its numbers are used up', () => {
    expect(LAST_SEQUENCE).toBeLessThan(2n ** 31n - 1_000_000n)
  })
})

describe('tokens', () => {
  test('are ordered by the transaction, and then by the position in it', () => {
    const tokens = [tokenOf(7n, 15), tokenOf(8n, 0), tokenOf(8n, 1), tokenOf((1n << 32n) + 1n, 0)]
    expect(tokens).toEqual(tokens.toSorted((a, b) => (a < b ? -1 : 1)))
  })

  test('G2 fit into 52 bits, or are refused', () => {
    expect(tokenOf((65_535n << 32n) + 0xffff_ffffn, 15)).toBe(2n ** 52n - 1n)
    expect(() => tokenOf(65_536n << 32n, 0)).toThrow(expect.objectContaining({ code: 'UNSUPPORTED' }))
  })
})
