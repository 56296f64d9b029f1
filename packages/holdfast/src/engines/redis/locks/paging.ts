/**
 * Lists in pages, node by node: a page is one step of SCAN on one primary. The cursor names the node and its position; a node
 * that is no primary any more makes it invalid.
 */

import { BackendUnavailableError, UnsupportedError } from '../../../base/errors.ts'
import { publicIdOf } from '../../../base/ids.ts'
import { compareNames } from '../../../base/names.ts'
import type { Call, NameState, Page, PageRequest, SessionState } from '../../../spi.ts'
import { readScanCursor, SCAN_START, type ScanRequest, scanCursor, scanStep } from '../client/index.ts'
import type { Connection } from './connection.ts'
import { inspect, inspectSession } from './states.ts'

/** How many items of a page are read at a time. */
const READ_AT_ONCE = 100

export async function listPage(
  connection: Connection,
  prefix: string,
  page: PageRequest,
  call: Call,
): Promise<Page<NameState>> {
  const { items, next } = await scanNames(connection, prefix, page, call)
  return { items: await readAll(items, (name) => inspect(connection, name, call)), next }
}

export async function sessionPage(
  connection: Connection,
  page: PageRequest,
  call: Call,
): Promise<Page<SessionState>> {
  const { keys, client } = connection
  const wanted = { ...keys.scanSessions(client.keyPrefix), shownOf: publicIdOf }
  const { items, next } = await scan(connection, page, wanted, call)
  return { items: await readAll(items, (id) => inspectSession(connection, id, call)), next }
}

/** Names, some of which may not be in use. */
export function scanNames(
  connection: Connection,
  prefix: string,
  page: PageRequest,
  call: Call,
): Promise<Page<string>> {
  checkNames(connection)
  const { keys, client } = connection
  return scan(connection, page, keys.scan(client.keyPrefix, prefix), call)
}

export function checkNames({ keys }: Connection): void {
  if (!keys.areOurs)
    throw new UnsupportedError(
      'redis: names cannot be listed or watched where the option `key` chooses the keys, because a key does not tell its name.',
    )
}

async function scan(
  { client }: Connection,
  { cursor, limit }: PageRequest,
  wanted: Omit<ScanRequest, 'position' | 'limit'>,
  call: Call,
): Promise<Page<string>> {
  const from = cursor === undefined ? undefined : readScanCursor(cursor, 1)
  const nodes = (await client.nodes(call.signal))
    // Empty where there is only one primary: it may be another one by the next page.
    .map((node) => ({ node, label: client.isCluster ? node.label : '' }))
    .sort((a, b) => compareNames(a.label, b.label))
  const at = from === undefined ? 0 : nodes.findIndex(({ label }) => label === from.where[0])
  const current = nodes[at]
  if (current === undefined)
    throw new BackendUnavailableError(
      'redis',
      `the list cannot go on: ${from?.where[0] ?? 'no node'} is not a primary of the Cluster any more. List again from the first page`,
      'not-applied',
    )
  const position = from?.position ?? SCAN_START
  const send = (args: readonly string[]) => current.node.send(args, call.signal)
  const { items, next } = await scanStep(send, { ...wanted, limit, position })
  if (next !== null) return { items, next: scanCursor([current.label], next) }
  const following = nodes[at + 1]
  return { items, next: following === undefined ? null : scanCursor([following.label], SCAN_START) }
}

/** Reads the items of a page, some at a time, and leaves out what is gone. */
async function readAll<T>(items: readonly string[], read: (item: string) => Promise<T | null>): Promise<T[]> {
  const found: (T | null)[] = []
  for (let start = 0; start < items.length; start += READ_AT_ONCE)
    found.push(...(await Promise.all(items.slice(start, start + READ_AT_ONCE).map(read))))
  return found.filter((each) => each !== null)
}
