/**
 * A fence is the proof that a holder shows to a guard: who issued it, for which name, with which token, to which
 * grant. Only core and `parseFence` make one; the type is branded so that a plain object or a bare bigint is not.
 */
import { limits } from './defaults.ts'
import { FenceInvalidError, InvalidArgumentError } from './errors.ts'
import { checkName, checkText } from './names.ts'

declare const brand: unique symbol

export interface Fence {
  readonly [brand]: true
  readonly issuer: string
  readonly name: string
  readonly mode: 'exclusive' | 'shared'
  /** Strictly increases with each grant of the issuer. Its top 11 bits are the epoch. */
  readonly token: bigint
  /** The lease's id: tells two holders apart who were issued the same token by a broken engine. */
  readonly grant: string
  /** For logs and messages: the token as decimal text, because a JSON number of its size loses digits (T42, tokens as doubles). */
  toJSON(): { issuer: string; name: string; mode: 'exclusive' | 'shared'; token: string; grant: string }
}

const MAX_TOKEN = 2n ** 63n - 1n
const EPOCH_SHIFT = 52n
/** The largest token of an engine: the bits above it are the epoch. */
export const LARGEST_ENGINE_TOKEN = (1n << EPOCH_SHIFT) - 1n

/** The marker that survives duplicate installs of the package in one process. */
const marker = Symbol.for('holdfast.fence')

/** A token with its epoch: one comparison is enough, also for a resource that only knows a number. */
export function withEpoch(epoch: number, engineToken: bigint): bigint {
  if (epoch === 0) return engineToken
  if (engineToken > LARGEST_ENGINE_TOKEN)
    throw new InvalidArgumentError(
      'epoch',
      `must stay 0: the engine's tokens (${engineToken}) leave no room for an epoch.`,
    )
  return (BigInt(epoch) << EPOCH_SHIFT) | engineToken
}

/** The engine's own number, or null if the token is not of this epoch. */
export function withoutEpoch(epoch: number, token: bigint): bigint | null {
  if (epoch === 0) return token
  return token >> EPOCH_SHIFT === BigInt(epoch) ? token & LARGEST_ENGINE_TOKEN : null
}

/** For core only: all other code gets fences from leases or from `parseFence`. */
export function makeFence(fields: {
  readonly issuer: string
  readonly name: string
  readonly mode: 'exclusive' | 'shared'
  readonly token: bigint
  readonly grant: string
}): Fence {
  const { issuer, name, mode, token, grant } = fields
  const fence = { issuer, name, mode, token, grant }
  Object.defineProperty(fence, marker, { value: true })
  Object.defineProperty(fence, 'toJSON', { value: toJSON })
  return Object.freeze(fence) as unknown as Fence
}

function toJSON(this: Fence): ReturnType<Fence['toJSON']> {
  return { ...this, token: this.token.toString() }
}

/** Whether `value` was made by core or `parseFence` (of any copy of Holdfast) and its fields are sound. */
export function isFence(value: unknown): value is Fence {
  return (
    typeof value === 'object' &&
    value !== null &&
    marker in value &&
    problemOf(value as unknown as Fence) === null
  )
}

function problemOf(fence: Fence): string | null {
  const { token, mode, grant } = fence
  if (typeof token !== 'bigint' || token < 1n || token > MAX_TOKEN)
    return 'token must be a positive 63-bit number'
  if (mode !== 'exclusive' && mode !== 'shared') return 'mode must be exclusive or shared'
  if (typeof grant !== 'string' || !/^[A-Za-z0-9_-]{1,64}$/.test(grant))
    return 'grant must be 1–64 characters of base64url'
  try {
    checkName(fence.name)
    checkText('issuer', fence.issuer, limits.issuerBytes)
  } catch (error) {
    return (error as Error).message
  }
  return null
}

/** The text form, for headers and messages: `hf1/<issuer>/<name>/<mode>/<token>/<grant>`, each part URL-encoded. */
export function fenceText(fence: Fence): string {
  const { issuer, name, mode, token, grant } = fence
  return ['hf1', encodeURIComponent(issuer), encodeURIComponent(name), mode, token.toString(), grant].join(
    '/',
  )
}

/** Reads what `fenceText` wrote, and nothing else. */
export function readFenceText(text: string): Fence {
  const parts = text.split('/')
  const [version, issuer, name, mode, token, grant] = parts
  if (parts.length !== 6 || version !== 'hf1')
    throw new FenceInvalidError('malformed', 'expected hf1 and five parts')
  if (!/^[1-9][0-9]{0,18}$/.test(token ?? ''))
    throw new FenceInvalidError('malformed', 'token must be a positive decimal number')
  const fence = makeFence({
    issuer: decodePart(issuer ?? ''),
    name: decodePart(name ?? ''),
    mode: mode as Fence['mode'],
    token: BigInt(token ?? ''),
    grant: grant ?? '',
  })
  const problem = problemOf(fence)
  if (problem !== null) throw new FenceInvalidError('malformed', problem)
  // One fence has one text: otherwise two texts of one fence could pass a check that compares texts.
  if (fenceText(fence) !== text)
    throw new FenceInvalidError('malformed', 'parts must be URL-encoded in the usual way')
  return fence
}

function decodePart(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    throw new FenceInvalidError('malformed', 'parts must be URL-encoded')
  }
}
