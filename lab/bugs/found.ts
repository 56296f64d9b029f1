/** Bugs of our own that the simulation or the bank has found, with the seed that shows them. */
export interface FoundBug {
  readonly what: string
  readonly where: string
  /** What to replay at the commit before the fix. */
  readonly seed: string
  readonly state: string
}

export const found: readonly FoundBug[] = [
  {
    what:
      'A lease that is granted when the last confirmed heartbeat is old starts with little time, and is lost within ' +
      'moments although its session has just been prolonged: a keep-alive that was under way does not list it as held, ' +
      'its confirmation is not applied to it (also when its answer says `granted`), and the next renewal comes too ' +
      'late. Safe, but a needless loss, mostly after network trouble.',
    where: 'core/keeper.ts: adopt and #apply',
    seed: '77, 183, 203 (the trace says "lost needlessly"); 13 times in 400 seeds',
    state: 'fixed: a grant that a keep-alive reports also prolongs a lease that its push has brought already',
  },
  {
    what:
      'The monotonic clocks of two processes differ by up to 265 ms: the offset between two readings of one clock was ' +
      'taken once at the start, and a process that was preempted while taking it stayed behind for ever. A lock was ' +
      'granted 7 ms before its holder’s confirmed prolongation + TTL (G1, G13).',
    where: 'core/clock.ts, systemClock',
    seed: 'scenario lost-update on sqlite with real processes on a busy machine; no seed',
    state: 'fixed: the machine-wide clock is read anew each time',
  },
]
