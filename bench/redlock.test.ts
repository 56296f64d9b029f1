import { wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { shortRun, whoTookPart } from './short-run.ts'

describe.runIf(wanted('redis'))('the benchmark of redlock', () => {
  test('everybody takes part on five nodes', async () => {
    const { subjects } = await shortRun('redlock', '--seconds', '0.005', '--rounds', '1')
    const [subject] = subjects
    if (subject === undefined) throw new Error('nothing was measured')
    const all = [
      'redlock',
      '@sesamecare-oss/redlock',
      'holdfast, ioredis',
      'holdfast, node-redis',
      'raw commands, ioredis',
    ]
    expect(whoTookPart(subject)).toEqual({ '5 nodes × 1': all, '5 nodes × 64': all })
    for (const { contenders } of subject.comparisons)
      for (const { pairsPerSecond } of contenders) expect(pairsPerSecond).toBeGreaterThan(0)
  })
})
