/**
 * Lists in pages: one node after the other is scanned, a step of SCAN for each page. What a majority has is on every group of
 * `blocking` nodes, so that many of them are scanned to the end. If a node does not answer, the next one is scanned instead.
 */

import { unlessAborted } from '../../base/aborting.ts'
import { BackendUnavailableError, InvalidArgumentError } from '../../base/errors.ts'
import { SCAN_START, type ScanPosition, type ScanStep, scanStep } from '../../clients/redis/index.ts'
import { cancelledCall } from '../../kit/backend-kit.ts'
import type { Call, Page, PageRequest } from '../../spi.ts'
import type { Ensemble } from './ensemble.ts'
import type { RedlockNode } from './node.ts'
import { reasonOf } from './poll.ts'

interface Cursor {
  /** How many nodes have been scanned to the end. */
  readonly done: number
  /** The index of the node that is being scanned. */
  readonly current: number
  readonly position: ScanPosition
}

const START: Cursor = { done: 0, current: 0, position: SCAN_START }

/** The names of one step, some of which may not be in use. */
export async function scanPage(
  ensemble: Ensemble,
  prefix: string,
  { cursor, limit }: PageRequest,
  call: Call,
): Promise<Page<string>> {
  const { nodes, blocking } = ensemble
  const from = cursor === undefined ? START : readCursor(cursor)
  const failures: string[] = []
  for (const node of nodes.slice(from.current)) {
    const position = node.index === from.current ? from.position : SCAN_START
    const scanned = scanAt(ensemble, node, prefix, position, limit).catch((error: unknown) => {
      failures.push(`${node.label}: ${reasonOf(node, error)}`)
      return null
    })
    const cancelled = () => cancelledCall('redlock', call.signal, 'unknown')
    const step = await unlessAborted(scanned, call.signal, cancelled)
    if (step === null) continue
    const { items, next } = step
    if (next !== null)
      return { items, next: cursorText({ done: from.done, current: node.index, position: next }) }
    const done = from.done + 1
    const isOver = done >= blocking
    return { items, next: isOver ? null : cursorText({ ...START, done, current: node.index + 1 }) }
  }
  throw new BackendUnavailableError(
    'redlock',
    `looking for names: ${blocking} of ${nodes.length} nodes must be scanned, and the rest of them does not answer (${failures.join('; ')})`,
    'not-applied',
  )
}

function scanAt(
  { keys }: Ensemble,
  node: RedlockNode,
  prefix: string,
  position: ScanPosition,
  limit: number,
): Promise<ScanStep> {
  const { keyPrefix } = node.connection
  const itemOf = (key: string) => {
    const name = keys.nameOf(key.slice(keyPrefix.length))
    return name?.startsWith(prefix) ? name : null
  }
  const pattern = keys.pattern(keyPrefix, prefix)
  return scanStep((args) => node.send(args), { pattern, position, limit, itemOf })
}

function cursorText({ done, current, position: { cursor, cut } }: Cursor): string {
  return JSON.stringify([done, current, cursor, ...(cut === undefined ? [] : [cut.until, cut.after])])
}

function readCursor(text: string): Cursor {
  try {
    const [done, current, cursor, until, after] = JSON.parse(text) as readonly unknown[]
    if (!Number.isInteger(done) || !Number.isInteger(current) || !/^\d+$/.test(String(cursor)))
      throw new TypeError()
    const cut = after === undefined ? {} : { cut: { until: String(until), after: String(after) } }
    return { done: Number(done), current: Number(current), position: { cursor: String(cursor), ...cut } }
  } catch {
    throw new InvalidArgumentError('cursor', 'must be the `next` of a page of the same list.')
  }
}
