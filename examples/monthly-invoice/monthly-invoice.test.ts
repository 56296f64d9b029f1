import { wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { run } from '../support/run.ts'

describe.runIf(wanted('postgres'))('monthly-invoice', () => {
  test('twenty replicas bill each month once, also when the one at it is killed or frozen', async () => {
    // It checks itself and fails when a claim does not hold.
    const said = await run('monthly-invoice')
    expect(said).toContain('  ✓ control: every customer got 20 bills')
    expect(said.filter((line) => /✓ control: every customer got \d+ bills$/.test(line))).toHaveLength(2)
    expect(said).toContain('  ✓ one replica ran the job, 19 found it done')
    expect(said).toContainEqual(
      expect.stringMatching(/✓ the database refused what replica-\d+ wrote too late$/),
    )
    expect(said.at(-1)).toBe('All 6 claims hold.')
    // Twenty processes need a while to start on a machine that is busy with other tests.
  })

  test('it explains itself', async () => {
    expect((await run('monthly-invoice', '--help')).join('\n')).toContain('--url')
  })
})
