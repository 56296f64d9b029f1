import { wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { run } from '../support/run.ts'

describe.runIf(wanted('postgres'))('last-unit', () => {
  test('ten buyers get the last unit once, in each of the right ways, and ten times in the wrong one', async () => {
    // It checks itself and fails when a claim does not hold.
    const said = await run('last-unit')
    expect(said).toContainEqual(expect.stringMatching(/✓ control: without protection it is sold \d+ times$/))
    expect(said.filter((line) => line.includes('1 sold, 1 promised, 0 left'))).toHaveLength(4)
    expect(said.at(-1)).toBe('All 4 claims hold.')
  })

  test('it explains itself, and refuses options that it does not know', async () => {
    expect((await run('last-unit', '--help')).join('\n')).toContain('--url')
    await expect(run('last-unit', '--fast')).rejects.toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--fast'),
    })
  })
})
