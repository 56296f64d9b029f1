import { describe, expect, test } from 'vitest'
import { checkAll, describeReport } from './check-all.ts'
import { checkIds } from './findings.ts'
import { Random } from './testing/random.ts'
import { simulate } from './testing/simulate.ts'
import { Story } from './testing/story.ts'
import { seenLate, withoutEngine } from './testing/views.ts'

describe('a simulated run that keeps every guarantee is found to keep them', () => {
  test.each([
    { seed: 1, clients: 5, operations: 1_500 },
    { seed: 2, clients: 7, operations: 1_500, faults: 0.02, names: 2 },
    { seed: 3, clients: 3, operations: 1_500, faults: 0.1 },
    { seed: 4, clients: 6, operations: 1_500, faults: 0.05, names: 3 },
  ])('seed $seed, with all that can be known', (simulation) => {
    const report = checkAll(simulate(simulation).history)
    expect(describeReport(report)).not.toContain('✗')
    expect(report).toMatchObject({ verdict: 'ok', needless: [] })
  })

  test('permits: what does not apply is declared', () => {
    const { history } = simulate({ seed: 5, clients: 6, operations: 1_500, faults: 0.05, capacity: 3 })
    const why = 'permits are no proof for a guard'
    const report = checkAll(history, {
      except: [
        { check: 'G5', status: 'not-judged', why },
        { check: 'lost-updates', status: 'not-judged', why },
      ],
    })
    expect(report).toMatchObject({ verdict: 'ok', needless: [] })
  })

  test.each([1, 2, 3, 4, 5, 6])('seed %i, where the engine tells nothing, or tells it late', (seed) => {
    const capacity = seed % 3 === 0 ? 3 : 0
    const simulated = simulate({
      seed,
      clients: 2 + seed,
      operations: 1_000,
      faults: 0.04,
      names: 2,
      capacity,
    })
    for (const history of [withoutEngine(simulated), seenLate(simulated, new Random(seed))]) {
      const report = checkAll(history)
      expect(describeReport(report)).not.toContain('✗')
      for (const { check, status } of report.checks)
        if (!['G5', 'G8', 'lost-updates'].includes(check))
          expect({ check, status }).toEqual({ check, status: 'held' })
    }
  })
})

describe('what could not be judged is never called ok', () => {
  test('an empty history: nothing is judged, and every check says why', () => {
    const report = checkAll(new Story().history())
    expect(report.verdict).toBe('incomplete')
    expect(report.checks.map(({ check }) => check)).toEqual(checkIds)
    for (const { status, notJudged } of report.checks) {
      expect(status).toBe('not-judged')
      expect(notJudged.length).toBeGreaterThan(0)
    }
  })

  test('a search that is given up is not judged, also if other names were searched to the end', () => {
    const { history } = simulate({ seed: 6, clients: 5, operations: 600, names: 2, everything: false })
    const [result] = checkAll(history, {
      only: ['linearizability'],
      linearizability: { maxConfigurations: 10 },
    }).checks
    expect(result).toMatchObject({ status: 'not-judged', judged: 0 })
    expect(result?.notJudged[0]?.why).toContain('given up: more than 10 configurations')
  })

  test('an exception covers its own status only; one that was not needed is told', () => {
    const twoHolders = new Story().engine(0, 'granted', 'a').engine(1, 'granted', 'b').history()
    const why = 'the clock of the server is stepped'
    const only = ['G1'] as const
    expect(checkAll(twoHolders, { only }).verdict).toBe('violated')
    expect(checkAll(twoHolders, { only, except: [{ check: 'G1', status: 'not-judged', why }] }).verdict).toBe(
      'violated',
    )
    const declared = { check: 'G1', status: 'violated', why } as const
    expect(checkAll(twoHolders, { only, except: [declared] })).toMatchObject({ verdict: 'ok', needless: [] })

    const one = new Story().engine(0, 'granted', 'a').history()
    const report = checkAll(one, { only, except: [declared] })
    expect(report).toMatchObject({ verdict: 'ok', needless: [declared] })
    expect(describeReport(report)).toContain('exception that was not needed: G1')
  })
})
