/** Bugs of our own that the simulation or the bank has found, with the seed that shows them. */
export interface FoundBug {
  readonly what: string
  readonly where: string
  /** `npm run sim -- --seed …` at the commit before the fix. */
  readonly seed: string
  readonly state: string
}

export const found: readonly FoundBug[] = [
  {
    what:
      'A waiter that is handed the name while a keep-alive is under way loses it again within milliseconds: the keep-alive ' +
      'lists it as waiting, its answer says `granted`, and core ignores that answer because the place has been left, so ' +
      'the lease keeps the deadline of the heartbeat before.',
    where: 'core/keeper.ts, #apply',
    seed: '139 (liveness), at the simulation’s first version; safe, but a needless loss',
    state: 'reported, pending',
  },
]
