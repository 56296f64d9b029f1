import { wanted } from 'holdfast-lab/servers'
import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test.runIf(wanted('radosgw'))(
  'twenty replicas write one report, also when one of them writes too late',
  async () => {
    // It exits with 1 if a claim does not hold.
    const lines = await run('report-in-a-bucket')
    expect(lines.at(-1)).toBe('All 4 claims hold.')
  },
)
