/**
 * Lists in pages: one node after the other is scanned, a step of SCAN for each page. What a majority has is on every group of
 * `blocking` nodes, so that many of them are scanned to the end. If a node does not answer, the next one is scanned instead.
 */

import { unlessAborted } from '../../../base/aborting.ts'
import { BackendUnavailableError, InvalidArgumentError } from '../../../base/errors.ts'
import { cancelledCall } from '../../../kit/backend-kit.ts'
import type { Call, Page, PageRequest } from '../../../spi.ts'
import { readScanCursor, SCAN_START, type ScanPosition, scanCursor, scanStep } from '../client/index.ts'
import type { Ensemble } from './ensemble.ts'
import { reasonOf } from './poll.ts'

/** The names of one step, some of which may not be in use. */
export async function scanPage(
  ensemble: Ensemble,
  prefix: string,
  { cursor, limit }: PageRequest,
  call: Call,
): Promise<Page<string>> {
  const { nodes, blocking, keys } = ensemble
  const from = cursor === undefined ? undefined : readScanCursor(cursor, 2)
  // How many nodes have been scanned to the end, and the index of the one that is being scanned.
  const [done = 0, current = 0] = from?.where.map(Number) ?? []
  if (!Number.isInteger(done) || !Number.isInteger(current))
    throw new InvalidArgumentError('cursor', 'must be the `next` of a page of the same list.')
  const failures: string[] = []
  for (const node of nodes.slice(current)) {
    const position = (node.index === current && from?.position) || SCAN_START
    const request = { ...keys.scan(node.connection.keyPrefix, prefix), position, limit }
    const scanned = scanStep((args) => node.send(args), request).catch((error: unknown) => {
      failures.push(`${node.label}: ${reasonOf(node, error)}`)
      return null
    })
    const cancelled = () => cancelledCall('redlock', call.signal, 'unknown')
    const step = await unlessAborted(scanned, call.signal, cancelled)
    if (step === null) continue
    const { items, next } = step
    const cursorAt = (where: readonly number[], at: ScanPosition) => scanCursor(where.map(String), at)
    if (next !== null) return { items, next: cursorAt([done, node.index], next) }
    const isOver = done + 1 >= blocking
    return { items, next: isOver ? null : cursorAt([done + 1, node.index + 1], SCAN_START) }
  }
  throw new BackendUnavailableError(
    'redlock',
    `looking for names: ${blocking} of ${nodes.length} nodes must be scanned, and the rest of them does not answer (${failures.join('; ')})`,
    'not-applied',
  )
}
