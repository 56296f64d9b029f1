/** Linearizability of the operations on many names: each name is an object of its own, searched on its own. */
import { explain } from './explain.ts'
import type { Act, Model } from './model.ts'
import { type SearchResult, search } from './search.ts'

export interface LinearizabilityOptions {
  /** For all names together. Default 60,000. */
  readonly timeoutMs?: number
  /** For each name: they are kept in memory. Default 4 million. */
  readonly maxConfigurations?: number
  /** False: search the acts as they are. For tests of the search itself. */
  readonly prepare?: boolean
}

export type NameResult<Call> =
  | {
      readonly result: 'linearizable'
      /** One order in which they can have taken effect. */
      readonly order: readonly Act<Call>[]
      readonly configurations: number
    }
  | {
      readonly result: 'not-linearizable'
      /** The longest order that was found. */
      readonly prefix: readonly Act<Call>[]
      /** Those that had to come next; at least one of them cannot. */
      readonly stuck: readonly Act<Call>[]
      readonly explanation: string
      readonly configurations: number
    }
  /** It was not found out; that is not "linearizable". */
  | { readonly result: 'unknown'; readonly why: string; readonly configurations: number }

export interface Linearizability<Call> {
  /** The worst of all names. */
  readonly result: NameResult<Call>['result']
  readonly names: ReadonlyMap<string, NameResult<Call>>
}

export function checkLinearizable<State, Call>(
  model: Model<State, Call>,
  acts: readonly Act<Call>[],
  options: LinearizabilityOptions = {},
): Linearizability<Call> {
  const { timeoutMs = 60_000, maxConfigurations = 4_000_000, prepare = true } = options
  const limits = { deadline: performance.now() + timeoutMs, maxConfigurations }
  const names = new Map<string, NameResult<Call>>()
  for (const [name, ofName] of Map.groupBy(acts, (act) => act.name)) {
    const prepared = (prepare ? model.prepare?.(ofName) : undefined) ?? ofName
    names.set(name, describe(model, name, search(model, prepared, limits)))
  }
  const results = [...names.values()].map(({ result }) => result)
  const worst = (['not-linearizable', 'unknown'] as const).find((result) => results.includes(result))
  return { result: worst ?? 'linearizable', names }
}

function describe<State, Call>(
  model: Model<State, Call>,
  name: string,
  found: SearchResult<State, Call>,
): NameResult<Call> {
  const { configurations } = found
  if (found.kind === 'found') return { result: 'linearizable', order: found.order, configurations }
  if (found.kind === 'gave-up') return { result: 'unknown', why: found.why, configurations }
  const { prefix, stuck, state } = found
  const explanation = explain(model, name, prefix, state, stuck)
  return { result: 'not-linearizable', prefix, stuck, explanation, configurations }
}
