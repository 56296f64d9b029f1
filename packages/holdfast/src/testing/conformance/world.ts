/** How the suite gets at an engine: what a harness provides. */
import type { Clock } from '../../base/clock.ts'
import type { Backend, Fencing } from '../../spi.ts'

export interface ClientOptions {
  readonly namespace?: string
  readonly issuer?: string
  readonly epoch?: number
}

/** One engine, fresh for one case: a new one, or a part of a running server that no other case uses. */
export interface World<F extends Fencing = Fencing> {
  /**
   * Another client, as if in another process. The world disposes of it at its end. On a server that many worlds share, a
   * world may put a namespace of its own around: `w7/apart` for the namespace `apart`, and `w7/default` for none.
   */
  client(options?: ClientOptions): Promise<Backend<F>>
  /** The clock of all clients. */
  readonly clock: Clock
  /** Lets that much time pass for clients and engine: a fake clock is moved on, a real one is waited for. */
  passTime(ms: number): Promise<void>
  /** A short TTL that the engine supports; all waits of the suite are multiples of it. */
  readonly ttlMs: number
  /** How exactly time can be told here: 1 with a fake clock, else what a busy machine may be late by. */
  readonly resolutionMs: number
  close(): Promise<void>

  // Members from here on are for single cases. A harness that cannot do one of them declares those cases as exceptions.

  /** The engine stops and starts again with what it keeps durably. Clients from before need not work any more. */
  restart?(): Promise<void>
  /** Removes the record of a name from the engine, as an operator might. No client is told. */
  deleteName?(name: string): Promise<void>
  /** From now on the answers to new calls take that much longer to arrive. */
  delayAnswers?(ms: number): Promise<void>
  /** How many commands the engine has been sent so far, by all clients. */
  countCommands?(): Promise<number>
  /** How many connections to the engine the clients of this world have now. */
  countConnections?(): Promise<number>
}

export type Hook = 'restart' | 'deleteName' | 'delayAnswers' | 'countCommands' | 'countConnections'

/** Told apart from a case that fails: an exception must say which of the two it is. */
export class MissingHookError extends Error {
  readonly hook: Hook
  constructor(hook: Hook) {
    super(
      `this world has no ${hook}(): provide it, or declare an exception with lacksHook: '${hook}' and say why`,
    )
    this.hook = hook
  }
}

/** The hook, or a failure that says how to go on: a case is never skipped silently. */
export function hookOf<H extends Hook>(world: World, hook: H): NonNullable<World[H]> {
  const found = world[hook]
  if (found === undefined) throw new MissingHookError(hook)
  return found.bind(world) as NonNullable<World[H]>
}
