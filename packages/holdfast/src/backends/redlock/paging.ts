/**
 * Lists in pages: one node after the other is scanned, a step of SCAN for each page. What a majority has is on every group of
 * nodes that leaves no majority without it (`blocking`), so that many of them are scanned to the end, whichever they are. The
 * cursor names the nodes that are done, and the one that is being scanned with its position. If that one does not
 * answer, another one is scanned from its beginning instead.
 */

import { unlessAborted } from '../../base/aborting.ts'
import { BackendUnavailableError, InvalidArgumentError } from '../../base/errors.ts'
import { SCAN_START, type ScanPosition, type ScanStep, scanStep } from '../../clients/redis/index.ts'
import { cancelledCall } from '../../kit/backend-kit.ts'
import type { Call, Page, PageRequest } from '../../spi.ts'
import type { Ensemble } from './ensemble.ts'
import type { RedlockNode } from './node.ts'
import { reasonOf } from './poll.ts'

/** Nodes by their index. */
interface Cursor {
  readonly done: readonly number[]
  readonly current: number
  readonly position: ScanPosition
}

/** The names of one step, some of which may not be in use. */
export async function scanPage(
  ensemble: Ensemble,
  prefix: string,
  { cursor, limit }: PageRequest,
  call: Call,
): Promise<Page<string>> {
  const from = cursor === undefined ? undefined : readCursor(cursor)
  const done = from?.done ?? []
  const failures: string[] = []
  for (const [index, node] of candidates(ensemble, from)) {
    const position = index === from?.current ? from.position : SCAN_START
    const scanned = scanAt(ensemble, node, prefix, position, limit).catch((error: unknown) => {
      failures.push(`${node.label}: ${reasonOf(node, error)}`)
      return null
    })
    const step = await unlessAborted(scanned, call.signal, () =>
      cancelledCall('redlock', call.signal, 'unknown'),
    )
    if (step === null) continue
    const { items, next } = step
    if (next !== null) return { items, next: cursorText({ done, current: index, position: next }) }
    const nowDone = [...done, index]
    const [following] = candidates(ensemble, { done: nowDone })
    const isOver = nowDone.length >= ensemble.blocking || following === undefined
    return {
      items,
      next: isOver ? null : cursorText({ done: nowDone, current: following[0], position: SCAN_START }),
    }
  }
  throw new BackendUnavailableError(
    'redlock',
    `looking for names: ${ensemble.blocking} of ${ensemble.nodes.length} nodes must be scanned, and the rest of them does not answer (${failures.join('; ')})`,
    'not-applied',
  )
}

/** The nodes that can be scanned: first the one that the cursor names, then those that answer. */
function candidates(
  { nodes }: Ensemble,
  from: Pick<Cursor, 'done'> & Partial<Cursor> = { done: [] },
): [index: number, node: RedlockNode][] {
  const rank = ([index, node]: [number, RedlockNode]) =>
    index === from.current ? 0 : node.isAnswering ? 1 : 2
  return [...nodes.entries()]
    .filter(([index]) => !from.done.includes(index))
    .sort((a, b) => rank(a) - rank(b))
}

function scanAt(
  { layout }: Ensemble,
  node: RedlockNode,
  prefix: string,
  position: ScanPosition,
  limit: number,
): Promise<ScanStep> {
  const { keyPrefix } = node.connection
  const itemOf = (key: string) => {
    const name = layout.nameOf(key.slice(keyPrefix.length))
    return name?.startsWith(prefix) ? name : null
  }
  const pattern = layout.pattern(keyPrefix, prefix)
  return scanStep((args) => node.send(args), { pattern, position, limit, itemOf })
}

function cursorText({ done, current, position: { cursor, cut } }: Cursor): string {
  return JSON.stringify([done, current, cursor, ...(cut === undefined ? [] : [cut.until, cut.after])])
}

function readCursor(text: string): Cursor {
  try {
    const [done, current, cursor, until, after] = JSON.parse(text) as readonly unknown[]
    if (!Array.isArray(done) || !Number.isInteger(current) || !/^\d+$/.test(String(cursor)))
      throw new TypeError()
    const cut = after === undefined ? {} : { cut: { until: String(until), after: String(after) } }
    return { done, current: Number(current), position: { cursor: String(cursor), ...cut } }
  } catch {
    throw new InvalidArgumentError('cursor', 'must be the `next` of a page of the same list.')
  }
}
