/**
 * A failure made small: faults are taken out of the plan, and what remains is shortened, as long as the same rule is
 * still broken. Every fault has dice of its own, so what remains happens as before.
 */
import type { Fault } from './faults.ts'
import { type RunResult, runSeed } from './run.ts'

export interface ShrinkOptions {
  /** How many runs it may take. */
  readonly maxRuns?: number
}

export async function shrink(failed: RunResult, options: ShrinkOptions = {}): Promise<readonly Fault[]> {
  const { seed, mode, workload, violation } = failed
  let runsLeft = options.maxRuns ?? 120
  let plan = failed.plan
  const checkHistory = violation?.rule.startsWith('history ') ?? false
  const stillFails = async (candidate: readonly Fault[]): Promise<boolean> => {
    if (runsLeft-- <= 0) return false
    const result = await runSeed(seed, { mode, workload, plan: candidate, checkHistory })
    if (result.violation?.rule !== violation?.rule) return false
    plan = candidate
    return true
  }
  // Faults that begin after the violation cannot have caused it.
  const atMs = violation?.atMs ?? Number.POSITIVE_INFINITY
  await stillFails(plan.filter((fault) => fault.atMs <= atMs))
  for (let size = Math.ceil(plan.length / 2); size >= 1 && runsLeft > 0; ) {
    const before = plan.length
    for (let from = 0; from < plan.length && runsLeft > 0; ) {
      const without = [...plan.slice(0, from), ...plan.slice(from + size)]
      if (!(await stillFails(without))) from += size
    }
    // Faults that were needed beside others may be dispensable without them: the last round is repeated until it takes nothing.
    if (size > 1 || plan.length === before) size = Math.floor(size / 2)
  }
  for (const { id } of plan) {
    for (let halvings = 0; halvings < 4; halvings++) {
      const shorter = plan.map((each) =>
        each.id === id ? { ...each, forMs: Math.round(each.forMs / 2) } : each,
      )
      if (!(await stillFails(shorter))) break
    }
  }
  return plan
}

/** The part of a seed's plan to keep, for the command line: `3,7:1200` is fault 3 as it is, and fault 7 for 1,200 ms. */
export function planText(plan: readonly Fault[], whole: readonly Fault[]): string {
  const original = new Map(whole.map((fault) => [fault.id, fault.forMs]))
  return plan.map(({ id, forMs }) => (original.get(id) === forMs ? `${id}` : `${id}:${forMs}`)).join(',')
}

export function readPlanText(text: string, whole: readonly Fault[]): readonly Fault[] {
  if (text === '') return []
  const kept = new Map(text.split(',').map((part) => readKept(part, whole)))
  return whole.flatMap((fault) => {
    if (!kept.has(fault.id)) return []
    const forMs = kept.get(fault.id)
    return [forMs === undefined ? fault : { ...fault, forMs: Number(forMs) }]
  })
}

/** A misspelt part would quietly replay something else. */
function readKept(part: string, whole: readonly Fault[]): [id: number, forMs: string | undefined] {
  const [, id, forMs] = /^(\d+)(?::(\d+))?$/.exec(part) ?? []
  if (id === undefined || !whole.some((fault) => fault.id === Number(id)))
    throw new Error(`"${part}" is not a fault of this seed, written as 7 or 7:1200`)
  return [Number(id), forMs]
}
