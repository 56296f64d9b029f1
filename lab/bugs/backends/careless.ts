/** A careless engine: it does not check whose claim it ends. */
import { callWith } from '../../../packages/holdfast/src/base/aborting.ts'
import { publicIdOf } from '../../../packages/holdfast/src/base/ids.ts'
import type { Backend, BackendSession, Call, Claim } from '../../../packages/holdfast/src/spi.ts'

/** Ends everything that is held, whatever the operator saw. */
export async function forceAll(backend: Backend, name: string, { signal }: Call): Promise<number> {
  const found = await backend.inspect(name, callWith(signal))
  const ids = found?.holders.map(({ id }) => id) ?? []
  return backend.forceRelease(
    name,
    ids,
    'everything',
    callWith(signal, { notAfterMs: Number.MAX_SAFE_INTEGER }),
  )
}

/** Releases whatever grant the attempt has. */
export async function releaseByAttempt(
  session: BackendSession,
  backend: Backend,
  claim: Claim,
  { signal }: Call,
): Promise<void> {
  const found = await backend.inspect(claim.name, callWith(signal))
  const holder = found?.holders.find(({ id }) => id === publicIdOf(claim.attempt))
  if (holder === undefined) return
  await session.release({ ...claim, grantId: String(holder.token) }, { keepForMs: 0 }, callWith(signal))
}
