/**
 * Lists in pages, node by node: a page is one step of SCAN on one primary. The cursor names the node and its position; a node
 * that is no primary any more makes it invalid.
 */

import { defaults } from '../../base/defaults.ts'
import { BackendUnavailableError, InvalidArgumentError } from '../../base/errors.ts'
import { compareNames } from '../../base/names.ts'
import {
  type RedisConnection,
  SCAN_START,
  type ScanPosition,
  type ScanRequest,
  scanStep,
} from '../../clients/redis/index.ts'
import type { Call, Page, PageRequest } from '../../spi.ts'

interface Cursor {
  /** Empty where there is only one primary. */
  readonly node: string
  readonly position: ScanPosition
}

export async function scanPage(
  connection: RedisConnection,
  { cursor, limit }: PageRequest,
  wanted: Omit<ScanRequest, 'position' | 'limit'>,
  call: Call,
): Promise<Page<string>> {
  const from = cursor === undefined ? undefined : readCursor(cursor)
  const nodes = (await connection.nodes(call.signal))
    .map((node) => ({ node, label: connection.isCluster ? node.label : '' }))
    .sort((a, b) => compareNames(a.label, b.label))
  const at = from === undefined ? 0 : nodes.findIndex(({ label }) => label === from.node)
  const current = nodes[at]
  if (current === undefined)
    throw new BackendUnavailableError(
      'redis',
      `the list cannot go on: ${from?.node ?? 'no node'} is not a primary of the Cluster any more. List again from the first page`,
      'not-applied',
    )
  const { items, next } = await scanStep((args) => current.node.send(args, call.signal), {
    ...wanted,
    limit,
    position: from?.position ?? SCAN_START,
  })
  if (next !== null) return { items, next: cursorText({ node: current.label, position: next }) }
  const following = nodes[at + 1]
  return {
    items,
    next: following === undefined ? null : cursorText({ node: following.label, position: SCAN_START }),
  }
}

export async function* allPages<T>(
  read: (page: PageRequest) => Promise<Page<T>>,
): AsyncGenerator<readonly T[]> {
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page = await read({ limit: defaults.pageItems, ...(cursor !== undefined && { cursor }) })
    yield page.items
    cursor = page.next
  }
}

function cursorText({ node, position: { cursor, cut } }: Cursor): string {
  return JSON.stringify([node, cursor, ...(cut === undefined ? [] : [cut.until, cut.after])])
}

function readCursor(text: string): Cursor {
  const [node, cursor, until, after] = partsOf(text)
  const isCut = until !== undefined && after !== undefined
  if (node === undefined || cursor === undefined || !/^\d+$/.test(cursor))
    throw new InvalidArgumentError('cursor', 'must be the `next` of a page of the same list.')
  return { node, position: { cursor, ...(isCut && { cut: { until, after } }) } }
}

function partsOf(text: string): readonly (string | undefined)[] {
  try {
    const parts: unknown = JSON.parse(text)
    return Array.isArray(parts) ? parts.map(String) : []
  } catch {
    return []
  }
}
