/** Input of the search: the operations as intervals, and the object as a sequential machine. */

/** One operation as the search sees it. */
export interface Act<Call> {
  /** The name on which the operation is called; each name is an object of its own. */
  readonly name: string
  readonly call: Call
  /** Its place in the order of all events; an act that returned before another was invoked comes before it. */
  readonly invoked: number
  /** Infinite if it is unknown whether it took effect. Equal places count as concurrent. */
  readonly returned: number
  /** True if it took effect between the two. Otherwise it may at any time after its invocation, or never. */
  readonly certain: boolean
  /** Set by `prepare`: of an act that need not happen, that it is never worse to let it happen as soon as it can. */
  readonly eager?: boolean
  /** For people; made only when it is printed, because most histories are fine. */
  label(): string
}

export interface Model<State, Call> {
  readonly title: string
  readonly initial: State
  /** The state after the call, or null if it cannot take effect in this state. */
  step(state: State, call: Call): State | null
  /** Equal for equal states, and only for those. */
  key(state: State): string
  /** In words, for reports. */
  describe(state: State): string
  /**
   * Makes the acts on one name easier to search without changing the answer: fewer that may or may not have happened
   * means exponentially fewer ways.
   */
  prepare?(acts: readonly Act<Call>[]): readonly Act<Call>[]
}
