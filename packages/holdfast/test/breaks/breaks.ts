/**
 * Planted breaks: for every guarantee at least one small change to the sources that takes it away, with the tests
 * that must turn red. A guarantee whose break nobody notices is not tested, whatever its tests are called.
 */

export interface PlantedBreak {
  readonly guarantee: `G${number}`
  /** What a careless change could look like. */
  readonly what: string
  /** In `src/`. */
  readonly file: string
  /** Must occur in the file exactly once, so that the list cannot rot unnoticed. */
  readonly find: string
  readonly replaceBy: string
  /** The test file that must turn red, in a test whose name has the guarantee's number. */
  readonly caughtBy: string
}

const conformance = 'test/conformance/memory.test.ts'

export const breaks: readonly PlantedBreak[] = [
  {
    guarantee: 'G1',
    what: 'the weights of the holders are not counted when a request is admitted',
    file: 'backends/memory/name-table.ts',
    find: '&& found.heldWeight + weight <= capacity)',
    replaceBy: ')',
    caughtBy: conformance,
  },
  {
    guarantee: 'G2',
    what: 'a token is counted per name that is in use, and so starts again',
    file: 'backends/memory/name-table.ts',
    find: 'claim.token = ++this.#lastToken',
    replaceBy: 'claim.token = BigInt(this.#names.size)',
    caughtBy: conformance,
  },
  {
    guarantee: 'G3',
    what: 'belief is judged by a timer only, not at every read',
    file: 'locker/lease.ts',
    find: '    if (this.#timeLeftMs() > 0) return\n',
    replaceBy: '    if (this.#timeLeftMs() > -1_000) return\n',
    caughtBy: 'src/locker/lease.test.ts',
  },
  {
    guarantee: 'G3',
    what: 'validity counts from the reply instead of the send time',
    file: 'locker/keep-alive.ts',
    find: 'if (loss === undefined) lease.confirm(result.since, result.ttlMs)',
    replaceBy:
      'if (loss === undefined) lease.confirm({ monotonicMs: this.#context.clock.monotonicMs(), wallMs: this.#context.clock.wallMs() }, result.ttlMs)',
    caughtBy: 'src/locker/keeper.test.ts',
  },
  {
    guarantee: 'G3',
    what: 'only the monotonic clock counts',
    file: 'base/clock.ts',
    find: 'return Math.max(clock.monotonicMs() - since.monotonicMs, clock.wallMs() - since.wallMs)',
    replaceBy: 'return clock.monotonicMs() - since.monotonicMs',
    caughtBy: 'src/locker/lease.test.ts',
  },
  {
    guarantee: 'G4',
    what: 'a confirmation revives a lease that is over',
    file: 'locker/lease.ts',
    find: `    this.judge()
    if (this.#isOver()) return
    this.#since = fresherOf(this.host.clock, this.#since, since)`,
    replaceBy: '    this.#since = fresherOf(this.host.clock, this.#since, since)',
    caughtBy: 'src/locker/lease-states.test.ts',
  },
  {
    guarantee: 'G5',
    what: 'the guard accepts an older token',
    file: 'guards/rule.ts',
    find: "if (fence.token < highest.token) return stale(highest.token, 'a newer holder has been here')",
    replaceBy: '',
    caughtBy: 'src/guards/memory.test.ts',
  },
  {
    guarantee: 'G5',
    what: 'a reader that brings a forgotten name back takes the floor away',
    file: 'guards/rule.ts',
    find: 'exclusiveBelow(fence, floor))',
    replaceBy: 'null)',
    caughtBy: 'src/guards/memory.test.ts',
  },
  {
    guarantee: 'G6',
    what: 'an acquire with an unknown outcome is forgotten instead of being abandoned',
    file: 'locker/waiting.ts',
    find: "if (stop.cancelled || outcomeOf(error) === 'unknown') session.resolve(request)",
    replaceBy: '',
    caughtBy: 'src/locker/keeper.test.ts',
  },
  {
    guarantee: 'G7',
    what: 'a release looks for the name instead of for its own claim',
    file: 'backends/memory/engine.ts',
    find: '    return session !== undefined && holdsGrant(session, claimed)\n',
    replaceBy:
      '    const [first] = this.#names.find(namespace, claimed.name)?.holders.values() ?? []\n    if (first !== undefined) return first\n    return session !== undefined && holdsGrant(session, claimed)\n',
    caughtBy: conformance,
  },
  {
    guarantee: 'G8',
    what: 'the last to come is the first to be served',
    file: 'backends/memory/line.ts',
    find: `  get first(): Member | undefined {
    return this.#first`,
    replaceBy: `  get first(): Member | undefined {
    return this.#last`,
    caughtBy: 'src/locker/locker.test.ts',
  },
  {
    guarantee: 'G9',
    what: 'a release wakes everybody who waits',
    file: 'backends/memory/name-table.ts',
    find: '        if (record.heldWeight + first.weight > record.capacity) break\n',
    replaceBy: '',
    caughtBy: 'src/locker/locker.test.ts',
  },
  {
    guarantee: 'G10',
    what: 'nobody wakes up when the holder’s time is over',
    file: 'backends/memory/engine.ts',
    find: 'const needed = this.#names.waiting > 0 || this.#watchers > 0',
    replaceBy: 'const needed = this.#watchers > 0',
    caughtBy: conformance,
  },
  {
    guarantee: 'G11',
    what: 'a failed release is thrown, and replaces what the body returned',
    file: 'locker/keeper.ts',
    find: "return 'unknown'\n    } finally {",
    replaceBy: 'throw error\n    } finally {',
    caughtBy: 'src/locker/keeper.test.ts',
  },
  {
    guarantee: 'G12',
    what: 'what was required of the engine is not checked',
    file: 'open.ts',
    find: 'for (const requirement of requirements) checkRequirement(backend, requirement)',
    replaceBy: '',
    caughtBy: 'src/open.test.ts',
  },
  {
    guarantee: 'G13',
    what: 'the engine gives a claim away before its time is up',
    file: 'backends/memory/engine.ts',
    find: 'session.expiresAtMs = Math.max(session.expiresAtMs, nowMs + session.ttlMs)',
    replaceBy: 'session.expiresAtMs = Math.max(session.expiresAtMs, nowMs + session.ttlMs * 0.9)',
    caughtBy: conformance,
  },
]
