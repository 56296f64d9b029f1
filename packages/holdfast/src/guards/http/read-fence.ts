/**
 * Reads the fence of a request. The headers are a stranger's word, so this is where text becomes proof:
 *
 *   Holdfast-Fence     the text of `formatFence`, signed unless `unsigned` is set
 *   X-Fencing-Token    a decimal number, for clients that know nothing else; only with `plainToken`
 *
 * A fence counts only for the name that the server took from its route: otherwise the holder of one name could write another.
 */

import { limits } from '../../base/defaults.ts'
import { FenceInvalidError, InvalidArgumentError } from '../../base/errors.ts'
import { type Fence, isFence, makeFence } from '../../base/fence.ts'
import { checkKey, type FenceKey, parseFence, tellInvalid } from '../../base/fence-text.ts'
import { type HeaderSource, headerOf } from '../../base/http.ts'
import { checkText } from '../../base/names.ts'
import { checkKnownOptions } from '../../base/options.ts'

export const FENCE_HEADER = 'holdfast-fence'
export const TOKEN_HEADER = 'x-fencing-token'

/** Whose word is trusted: exactly one of `keys` and `unsigned`. */
export interface FenceTrust {
  /** Only fences that one of these keys signed are accepted. */
  readonly keys?: readonly FenceKey[]
  /** Accepts fences without a signature: only where no stranger can send a request. */
  readonly unsigned?: true
  /** Accepts `X-Fencing-Token: 34` as well, as an exclusive fence of this issuer. It carries no signature, so it needs `unsigned`. */
  readonly plainToken?: { readonly issuer: string }
}

export interface ReadFenceOptions extends FenceTrust {
  /** The name that the request is about, from its route. A fence for another name is refused. */
  readonly name: string
  /** Named in the event `guard-refused`. Default: a guard named `http`. */
  readonly guard?: { readonly name: string }
}

export const trustOptions = ['keys', 'unsigned', 'plainToken'] as const

/**
 * The fence of a request, whose headers are those of a fetch `Request` or of node's `IncomingMessage`.
 *
 * @throws FenceInvalidError   missing, malformed, forged, or for another name
 */
export function readFence(headers: HeaderSource, options: ReadFenceOptions): Fence {
  checkKnownOptions('options', options, [...trustOptions, 'name', 'guard'])
  return fenceReader(options, options.guard?.name ?? 'http')(headers, options.name)
}

export type FenceReader = (headers: HeaderSource, name: string) => Fence

/** A `readFence` whose options were checked once. Each refusal is told as the guard's. */
export function fenceReader(trust: FenceTrust, guard: string): FenceReader {
  const { keys, plainToken } = checkTrust(trust)
  const verified = rememberedFences(keys)
  return (headers, name) => {
    if (typeof name !== 'string')
      throw new InvalidArgumentError(
        'name',
        `must be text that was taken from the route, not ${typeof name}.`,
      )
    try {
      const fence = parse(headers, name, verified, plainToken?.issuer)
      if (fence.name !== name) throw new FenceInvalidError('wrong-name')
      return fence
    } catch (error) {
      tellInvalid(guard, error)
      throw error
    }
  }
}

/** A holder shows one text again and again, and to verify it costs more than the rest of a small request. */
const REMEMBERED_TEXTS = 1_000

function rememberedFences(keys: readonly FenceKey[] | undefined): (text: string) => Fence {
  const fences = new Map<string, Fence>()
  return (text) => {
    let fence = fences.get(text)
    if (fence === undefined) {
      fence = parseFence(text, keys === undefined ? {} : { keys })
      if (fences.size >= REMEMBERED_TEXTS) fences.clear()
      fences.set(text, fence)
    }
    return fence
  }
}

function parse(
  headers: HeaderSource,
  name: string,
  verified: (text: string) => Fence,
  issuer: string | undefined,
): Fence {
  const text = headerOf(headers, FENCE_HEADER)
  const token = headerOf(headers, TOKEN_HEADER)
  if (text !== null && token !== null)
    throw new FenceInvalidError('malformed', 'two headers claim to be the fence')
  if (text !== null) return verified(text)
  if (token === null || issuer === undefined) throw new FenceInvalidError('missing')
  if (!/^[1-9][0-9]{0,18}$/.test(token))
    throw new FenceInvalidError('malformed', 'not a positive decimal number')
  const fence = makeFence({ issuer, name, mode: 'exclusive', token: BigInt(token), grant: `t${token}` })
  if (!isFence(fence)) throw new FenceInvalidError('malformed', 'token or name are out of bounds')
  return fence
}

function checkTrust({ keys, unsigned, plainToken }: FenceTrust): FenceTrust {
  if (unsigned !== undefined && unsigned !== true)
    throw new InvalidArgumentError('unsigned', 'must be true, or left out.')
  if ((keys === undefined) === (unsigned === undefined))
    throw new InvalidArgumentError(
      'keys',
      'or `unsigned: true` must be given, and not both: say whether fences must be signed.',
    )
  if (keys !== undefined && (!Array.isArray(keys) || keys.length === 0))
    throw new InvalidArgumentError('keys', 'must be a list of at least one key.')
  keys?.forEach(checkKey)
  if (plainToken === undefined) return { ...(keys !== undefined && { keys }) }
  checkKnownOptions('plainToken', plainToken, ['issuer'])
  if (unsigned === undefined)
    throw new InvalidArgumentError(
      'plainToken',
      'needs `unsigned: true`: a plain number carries no signature.',
    )
  return { plainToken: { issuer: checkText('plainToken.issuer', plainToken.issuer, limits.issuerBytes) } }
}
