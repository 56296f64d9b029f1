// A server to use and not to break: the one whose address is in the environment, or one of our own.

import type { Engine } from '../obtain/engines.ts'
import { addressOf } from '../obtain/find.ts'
import { startLot } from './lot.ts'

export interface Reached extends AsyncDisposable {
  readonly url: string
  stop(): Promise<void>
}

export async function reach(engine: Engine): Promise<Reached> {
  const lent = addressOf(engine)
  if (lent === null) return (await startLot([engine]))[engine]
  const stop = async () => {}
  return { url: lent, stop, [Symbol.asyncDispose]: stop }
}
