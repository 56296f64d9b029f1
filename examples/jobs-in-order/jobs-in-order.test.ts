import { wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { run } from '../support/run.ts'

describe.runIf(wanted('postgres'))('jobs-in-order', () => {
  test('events of one account are booked in order, through a killed worker and a poison event', async () => {
    // It checks itself and fails when a claim does not hold.
    const said = await run('jobs-in-order')
    expect(said).toContain('  ✓ 1 worker was killed')
    expect(said).toContain('  ✓ the events of every account are booked in order')
    expect(said).toContain('  ✓ 39 of 39 good events are booked, each once')
    expect(said).toContain(
      '  ✓ the poison event is set aside after 3 starts, and the account goes on without it',
    )
    expect(said.at(-1)).toBe('All 4 claims hold.')
  })
})
