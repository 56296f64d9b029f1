/**
 * The keys of a guard in Redis, three that lie in one slot of a Cluster:
 *
 *   names     hash: name → the newest fence, and the highest exclusive token among all that were seen
 *   touched   sorted set: name, by when it was touched last
 *   issuers   hash: `pinned` → whose fence came first; `floor <issuer>` → what stays of forgotten names
 */
import type { Floor } from '../../../guards/rule.ts'

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

export function parseFloor(text: string): Floor {
  const [token = '', grant = ''] = text.split('\n')
  return { token: BigInt(token), grant }
}
