import { wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { run } from '../support/run.ts'

describe.runIf(wanted('postgres'))('payment-retries', () => {
  test('a payment that is sent ten times at once is charged once, also through a crash', async () => {
    // It checks itself and fails when a claim does not hold.
    const said = await run('payment-retries')
    expect(said).toContain('  ✓ control: without protection it is charged 10 times')
    expect(said).toContain('  ✓ with an idempotency key it is charged 1 time')
    expect(said).toContain('  ✓ refused (KEY_REUSED), and nothing is charged')
    expect(said).toContain('  ✓ control: a takeover that does not look charges 2 times')
    expect(said).toContain('  ✓ a takeover that looks first charges 1 time, and books it 1 time')
    expect(said).toContain('  ✓ control: a second try that does not look charges 2 times')
    expect(said).toContain('  ✓ a second try that looks first charges 1 time, and books it 1 time')
    expect(said.at(-1)).toBe('All 7 claims hold.')
  })

  test('it explains itself', async () => {
    expect((await run('payment-retries', '--help')).join('\n')).toContain('--url')
  })
})
