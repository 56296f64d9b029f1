import { wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { run } from '../support/run.ts'

describe.runIf(wanted('postgres'))('layered-defence', () => {
  test('each layer catches something, and without any of them money goes wrong', async () => {
    // It checks itself and fails when a claim does not hold.
    const said = await run('layered-defence')
    expect(
      said.filter((line) => /✓ (idempotency|lock|guard|reconciliation) +\d+ × /.test(line)),
    ).toHaveLength(4)
    expect(said).toContainEqual(
      expect.stringMatching(/✓ the audit finds that everybody was paid what was due, once$/),
    )
    expect(said).toContainEqual(
      expect.stringMatching(/✓ control: without idempotency: .*Ben was paid 3 times/),
    )
    expect(said).toContainEqual(
      expect.stringMatching(/✓ control: without lock: .*Ada has earned 100 and was paid 200/),
    )
    expect(said).toContainEqual(expect.stringMatching(/✓ control: without guard: .*Cleo .* was paid 200/))
    expect(said).toContainEqual(expect.stringMatching(/✓ control: without reconciliation: .*Dan.*Eve/))
    expect(said.at(-1)).toBe('All 5 claims hold.')
  })

  test('it explains itself', async () => {
    expect((await run('layered-defence', '--help')).join('\n')).toContain('--url')
  })
})
