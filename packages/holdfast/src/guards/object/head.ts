/** A head as it is stored: the mark of a name, and where its data is. */
import { InvalidArgumentError, quote } from '../../base/errors.ts'
import { makeFence } from '../../base/fence.ts'
import type { Remembered } from '../rule.ts'

export interface Head {
  readonly remembered: Remembered
  /** The newest writes, the newest first: a writer that got no answer finds its own here. */
  readonly last: readonly string[]
  /** The key of the data; null when it was deleted or never written. */
  readonly ptr: string | null
  /** Random in each version, so that no two versions have the same ETag where that is a hash of the body (T93, repeated ETags). */
  readonly nonce: string
}

const VERSION = 1
const MOST_REMEMBERED_WRITES = 16

/** The head after a write. `ptr`: the key of its data, or null to delete. */
export function withWrite(head: Omit<Head, 'nonce'>, id: string, ptr: string | null): Omit<Head, 'nonce'> {
  return { ...head, last: [id, ...head.last].slice(0, MOST_REMEMBERED_WRITES), ptr }
}

/** Whether a write that `now` does not list was certainly not applied on top of `before`. */
export function wasNotApplied(before: Head | null, now: Head | null): boolean {
  const [newest] = before?.last ?? []
  const last = now?.last ?? []
  return newest === undefined ? last.length < MOST_REMEMBERED_WRITES : last.includes(newest)
}

export function isSameMark(a: Remembered | undefined, b: Remembered): boolean {
  return a !== undefined && markText(a) === markText(b)
}

function markText({ highest, exclusiveToken }: Remembered): string {
  const { issuer, mode, token, grant } = highest
  return [issuer, mode, token, grant, exclusiveToken].join('\n')
}

export function formatHead({ remembered, last, ptr, nonce }: Head): string {
  const { issuer, mode, token, grant } = remembered.highest
  const exclusive = remembered.exclusiveToken === null ? null : `${remembered.exclusiveToken}`
  return JSON.stringify({ v: VERSION, issuer, mode, token: `${token}`, grant, exclusive, nonce, last, ptr })
}

export function parseHead(key: string, name: string, body: Uint8Array): Head {
  try {
    const { v, issuer, mode, token, grant, exclusive, nonce, last, ptr } = JSON.parse(
      new TextDecoder().decode(body),
    )
    if (v !== VERSION || !Array.isArray(last) || typeof nonce !== 'string') throw new Error('another format')
    const highest = makeFence({ issuer, name, mode, token: BigInt(token), grant })
    return {
      remembered: { highest, exclusiveToken: exclusive === null ? null : BigInt(exclusive) },
      last,
      ptr,
      nonce,
    }
  } catch (cause) {
    const what = `${quote(key)} holds something else than the head of a guarded object.`
    throw new InvalidArgumentError('key', `${what} Choose another key for ${quote(name)}, or remove it.`, {
      cause,
    })
  }
}
