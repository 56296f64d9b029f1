/** Reads of all keys below a prefix, and blocking queries: the same reads, answered when something there is newer than an index. */
import { callWith } from '../../../base/aborting.ts'
import type { PolledKeys } from '../../../kit/polled-watches.ts'
import type { Call } from '../../../spi.ts'
import type { ConsulClient, Question } from './client.ts'
import { arrayOf, type Entry, entryOf } from './messages.ts'

const WAIT_MS = 10_000
/** Consul adds up to a sixteenth, so that polls do not end together. */
const POLL_LIMIT_MS = 1.0625 * WAIT_MS + 2_000

export async function pollTree(
  client: ConsulClient,
  prefix: string,
  index: bigint,
  signal: AbortSignal,
): Promise<PolledKeys<readonly Entry[]>> {
  const question = below(prefix, `recurse${waiting(index)}`, (body) => arrayOf(body).map(entryOf))
  const { index: read, found } = await client.poll(question, POLL_LIMIT_MS, callWith(signal))
  return { index: read, keys: new Map(found.map(({ key, modified }) => [key, modified])), seen: found }
}

/** The names of the keys alone. */
export async function pollKeys(
  client: ConsulClient,
  prefix: string,
  index: bigint,
  signal: AbortSignal,
): Promise<PolledKeys<never>> {
  const question = below(prefix, `keys${waiting(index)}`, textsOf)
  const { index: read, found } = await client.poll(question, POLL_LIMIT_MS, callWith(signal))
  return { index: read, keys: new Map(found.map((key) => [key, null])) }
}

/** Linearizable. With `/` as the end of a key: up to the next one, once for all below it. */
export async function keysBelow(
  client: ConsulClient,
  prefix: string,
  isCutAtSlash: boolean,
  call: Call,
): Promise<readonly string[]> {
  const query = isCutAtSlash ? 'keys&separator=/&consistent' : 'keys&consistent'
  return (await client.ask(below(prefix, query, textsOf), call)).found
}

function below<T>(prefix: string, query: string, found: (body: unknown) => readonly T[]) {
  const question: Question<{ readonly index: bigint; readonly found: readonly T[] }> = {
    method: 'GET',
    path: `/v1/kv/${prefix.split('/').map(encodeURIComponent).join('/')}?${query}`,
    isRead: true,
    also: [404],
    read: (status, body, _member, { index }) => {
      if (index === null) throw new Error('it has no index')
      return { index, found: status === 404 ? [] : found(body) }
    },
  }
  return question
}

function waiting(index: bigint): string {
  return index > 0n ? `&index=${index}&wait=${WAIT_MS}ms` : ''
}

function textsOf(body: unknown): readonly string[] {
  return arrayOf(body).map((each) => {
    if (typeof each !== 'string') throw new Error('a key is no text')
    return each
  })
}
