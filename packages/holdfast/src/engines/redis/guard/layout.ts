/**
 * The keys of a guard in Redis, three that lie in one slot of a Cluster:
 *
 *   names     hash: name → the newest fence, and the highest exclusive token among all that were seen
 *   touched   sorted set: name, by when it was touched last
 *   issuers   hash: `pinned` → whose fence came first; `floor <issuer>` → what stays of forgotten names
 *
 * A token is text of 19 digits: a double, which is all that Lua has, tells only 53 of its 63 bits apart (T42, tokens as doubles). Texts of one
 * length are ordered like the numbers. Neither names nor issuers contain control characters, so a line break parts them.
 */
import { makeFence } from '../../../base/fence.ts'
import type { Floor, Remembered } from '../../../guards/rule.ts'

export interface GuardKeys {
  readonly names: string
  readonly touched: string
  readonly issuers: string
}

export function guardKeys(tag: string, name: string): GuardKeys {
  const prefix = `holdfast:guard:{${tag}}:${name}:`
  return {
    names: `${prefix}names`,
    touched: `${prefix}touched`,
    issuers: `${prefix}issuers`,
  }
}

export const PINNED = 'pinned'

export function floorField(issuer: string): string {
  return `floor ${issuer}`
}

export function rememberedText({ highest, exclusiveToken }: Remembered): string {
  const { issuer, mode, token, grant } = highest
  return [issuer, mode, digits(token), grant, exclusiveToken === null ? '' : digits(exclusiveToken)].join(
    '\n',
  )
}

export function parseRemembered(name: string, text: string): Remembered {
  const [issuer = '', mode, token = '', grant = '', exclusive = ''] = text.split('\n')
  const highest = makeFence({
    issuer,
    name,
    mode: mode === 'shared' ? 'shared' : 'exclusive',
    token: BigInt(token),
    grant,
  })
  return { highest, exclusiveToken: exclusive === '' ? null : BigInt(exclusive) }
}

export function parseFloor(text: string): Floor {
  const [token = '', grant = ''] = text.split('\n')
  return { token: BigInt(token), grant }
}

function digits(token: bigint): string {
  return token.toString().padStart(19, '0')
}
