/**
 * A mark as text, for storages without columns.
 *
 * A token is text of 19 digits: a double, which is all that Lua has, tells only 53 of its 63 bits apart (T42, tokens as doubles). Texts of one
 * length are ordered like the numbers. Neither names nor issuers contain control characters, so a line break parts them.
 */
import { makeFence } from '../base/fence.ts'
import type { Remembered } from './rule.ts'

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

function digits(token: bigint): string {
  return token.toString().padStart(19, '0')
}
