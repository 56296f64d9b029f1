import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { wanted } from '../servers/wanted.ts'
import { checkModel } from './check.ts'

const model = fileURLToPath(new URL('lease.pml', import.meta.url))

describe.runIf(wanted('spin'))('the model of lease, fence and guard', () => {
  test('G5 T40 with the guard on reads and writes no acknowledged update is lost, in any order of events', async () => {
    const verdict = await checkModel(model, ['GUARD_READS', 'GUARD_WRITES'])
    console.log(`formal: ${verdict.states} states, every one visited`)
    expect(verdict).toMatchObject({ complete: true, errors: 0 })
    expect(verdict.states).toBeGreaterThan(1_000_000)
  })

  test('without a guard there is a counter-example', async () => {
    const verdict = await checkModel(model, [])
    expect(verdict).toMatchObject({ errors: 1, violated: 'seen==value' })
    expect(verdict.counterExample.length).toBeGreaterThan(10)
  })

  test('T40 with the guard on writes alone there is a counter-example: a read by the successor, then a stale write', async () => {
    const verdict = await checkModel(model, ['GUARD_WRITES'])
    expect(verdict).toMatchObject({ errors: 1, violated: 'seen==value' })
    expect(verdict.counterExample.length).toBeGreaterThan(10)
  })
})
