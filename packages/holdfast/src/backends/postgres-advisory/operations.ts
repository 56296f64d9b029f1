/** What is asked of a connection that has locks: see `advisory_apply` in `schema.ts`. */

/** As the server knows them. */
export const operations = {
  tryExclusive: 'x',
  tryShared: 's',
  /** Others of this session share the lock already, and the connection has it. */
  join: 'j',
  giveUpExclusive: 'r',
  giveUpShared: 'u',
  /** Others of this session go on to share it, so the connection keeps the lock. */
  leave: 'l',
} as const

export type Operation = (typeof operations)[keyof typeof operations]

export interface Item {
  readonly op: Operation
  readonly key: string
  /** Where the record of it is. */
  readonly slot: number
  readonly id: string
  readonly name: string
  readonly note?: string | undefined
  readonly owner?: string | undefined
}

export interface Answer {
  readonly kind: 'granted' | 'busy' | 'collision' | 'failed' | 'released' | 'gone'
  /** The token, the other name, or what failed. */
  readonly detail: string
}

/** What undoes a lock that was, or may have been, got by this one; null: it gets none. */
export function undoing(op: Operation): Operation | null {
  if (op === operations.tryExclusive) return operations.giveUpExclusive
  return op === operations.tryShared ? operations.giveUpShared : null
}

export function isGivingUp(op: Operation): boolean {
  const { giveUpExclusive, giveUpShared, leave } = operations
  return op === giveUpExclusive || op === giveUpShared || op === leave
}
