/** Checks a whole history: each name against the model of the lock that it was used as. */
import { lockCapacity } from '../claims.ts'
import { type Finding, Findings } from '../findings.ts'
import type { History } from '../history.ts'
import { type Lease, leasesOf } from '../leases.ts'
import { checkLinearizable, type LinearizabilityOptions, type NameResult } from './check.ts'
import { lockActs } from './from-history.ts'
import type { Act, Model } from './model.ts'
import type { LockCall } from './models/call.ts'
import { fencedMutex } from './models/fenced-mutex.ts'
import { mutex } from './models/mutex.ts'
import { reentrantFencedMutex } from './models/reentrant-fenced-mutex.ts'
import { semaphore } from './models/semaphore.ts'

export interface HistoryLinearizabilityOptions extends LinearizabilityOptions {
  /** Processes may re-enter what they hold, as often at once as this. Default: not at all. */
  readonly reentrantDepth?: number
}

export function checkHistoryLinearizable(
  history: History,
  options: HistoryLinearizabilityOptions = {},
): Finding {
  const { reentrantDepth, timeoutMs = 60_000, ...rest } = options
  const found = new Findings('linearizability')
  const deadline = performance.now() + timeoutMs
  const acts = lockActs(history, { owner: reentrantDepth === undefined ? 'lease' : 'process' })
  const resized = new Set(history.engine.filter(({ what }) => what === 'resized').map(({ name }) => name))
  const leases = Map.groupBy(leasesOf(history).values(), ({ name }) => name)

  let judged = 0
  let gaveUp = false
  if (acts.length === 0) found.leaveOpen('nobody has acquired anything')
  for (const [name, ofName] of Map.groupBy(acts, (act) => act.name)) {
    if (resized.has(name)) {
      found.leaveOpen('a name was resized, which no model knows')
      continue
    }
    const remaining = { ...rest, timeoutMs: Math.max(0, deadline - performance.now()) }
    const check = modelFor(leases.get(name) ?? [], ofName, reentrantDepth)
    const result = check(ofName, remaining)
    if (result.result === 'unknown') {
      gaveUp = true
      found.leaveOpen(`the search was given up: ${result.why}`)
    } else judged += ofName.length
    if (result.result === 'not-linearizable')
      found.violated(
        name,
        result.explanation,
        result.stuck.map((act) => act.label()),
      )
  }
  // One name that was not searched to the end may hide a violation: then the whole is not judged.
  if (!gaveUp) found.judged(judged)
  return found.done()
}

type Check = (acts: readonly Act<LockCall>[], options: LinearizabilityOptions) => NameResult<LockCall>

function modelFor(
  leases: readonly Lease[],
  acts: readonly Act<LockCall>[],
  reentrantDepth: number | undefined,
): Check {
  const exclusive = leases.every(({ claim }) => claim.weight === claim.capacity)
  if (reentrantDepth !== undefined) return bind(reentrantFencedMutex(reentrantDepth))
  if (exclusive)
    return acts.some(({ call }) => call.token !== undefined) ? bind(fencedMutex()) : bind(mutex())
  return bind(
    semaphore(leases.reduce((most, { claim }) => Math.max(most, claim.capacity), 0) || lockCapacity),
  )
}

/** Each model has a state of its own, which nothing outside needs to know. */
function bind<State>(model: Model<State, LockCall>): Check {
  return (acts, options) => {
    const [result] = checkLinearizable(model, acts, options).names.values()
    return result ?? { result: 'linearizable', order: [], configurations: 0 }
  }
}
