/** Says in words where a history stops making sense. */
import type { Act, Model } from './model.ts'

const shownBefore = 5
const shownAfter = 8

export function explain<State, Call>(
  model: Model<State, Call>,
  name: string,
  prefix: readonly Act<Call>[],
  state: State,
  stuck: readonly Act<Call>[],
): string {
  const hidden = Math.max(0, prefix.length - shownBefore)
  const lines = [
    `The operations on ${JSON.stringify(name)} cannot have taken effect one at a time on a ${model.title}.`,
    `At most these ${prefix.length} can be put in order:`,
    ...(hidden > 0 ? [`  … ${hidden} before`] : []),
    ...prefix.slice(hidden).map((act) => `  ${act.label()}`),
    `Then ${model.describe(state)}, and one of these must come next:`,
    ...stuck.slice(0, shownAfter).map((act) => `  ${act.label()}: ${verdict(model, state, act, stuck)}`),
    ...(stuck.length > shownAfter ? [`  … ${stuck.length - shownAfter} more`] : []),
  ]
  return lines.join('\n')
}

/** In the state shown, either it cannot take effect, or it can and leaves no room for one that must return first. */
function verdict<State, Call>(
  model: Model<State, Call>,
  state: State,
  act: Act<Call>,
  stuck: readonly Act<Call>[],
): string {
  if (model.step(state, act.call) === null) return 'cannot take effect then'
  const first = stuck.reduce((least, each) => (each.returned < least.returned ? each : least), act)
  return first === act ? 'leads no further' : `would leave no place for ${first.label()}`
}
