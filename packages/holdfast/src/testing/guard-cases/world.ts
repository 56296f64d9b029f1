/** How the suite gets at a guarded resource: what a harness provides. */
import type { Guard, GuardOptions } from '../../guards/guard.ts'

/** One resource, fresh for one case. It stores strings under keys, for the effects of the cases. */
export interface GuardWorld<Tx> {
  /** A guard of the resource, on the world's clock. */
  guard(options?: GuardOptions): Promise<Guard<Tx>>
  read(tx: Tx, key: string): Promise<string | undefined>
  write(tx: Tx, key: string, value: string): Promise<void>
  /** The committed value, read past every guard. */
  stored(key: string): Promise<string | undefined>
  /** A transaction that is not the guard's, for `enter`: committed when `body` returns, rolled back when it throws. */
  transaction<T>(guard: Guard<Tx>, body: (tx: Tx) => Promise<T>): Promise<T>
  /** Something to hand to `enter` that is not inside a transaction. */
  outsideTransaction(guard: Guard<Tx>): Promise<Tx>
  /** Lets that much time pass on the clock by which guards forget. */
  passTime(ms: number): Promise<void>
  /** As after a restart of the process: all guards made so far are gone, and so is what only they knew. */
  reopen(): Promise<void>
  close(): Promise<void>
}
