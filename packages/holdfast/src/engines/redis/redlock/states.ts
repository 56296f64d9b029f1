/**
 * The majority's view of names. Where nodes do not answer, a name is shown as held if it may be held: a
 * server that is down is no reason to call a name free (T56, unknown is not free).
 */

import { publicIdOf } from '../../../base/ids.ts'
import { claimState } from '../../../kit/backend-kit.ts'
import { type Call, type HolderState, LOCK_CAPACITY, type NameState } from '../../../spi.ts'
import { digestOf, foreignHolder, type RedisReply } from '../client/index.ts'
import type { Ensemble } from './ensemble.ts'
import { type LockRecord, parseLock } from './keys.ts'
import type { RedlockNode } from './node.ts'
import { lookScript } from './scripts.ts'

/** The lock of a name at one node. */
interface SeenLock {
  readonly record: LockRecord
  readonly value: string
  readonly nowMs: number
  /** Infinite if it never ends. */
  readonly leftMs: number
}

/** A name that a majority holds, or may hold. */
export interface Found {
  readonly state: NameState
  readonly record: LockRecord
  readonly value: string
}

const LARGEST_CALL = 500

/** The names that are in use. */
export async function lookAt(
  ensemble: Ensemble,
  names: readonly string[],
  call: Call,
): Promise<readonly Found[]> {
  ensemble.begin(call)
  const keys = names.map((name) => ensemble.keys.lock(name))
  const poll = ensemble.poll((node) => locksAt(node, keys))
  await poll.until(() => false, call)
  const { answered, failed } = poll
  if (answered.length < ensemble.quorum)
    throw ensemble.unavailable('looking at names: answered', answered.length, poll, 'not-applied')
  return names
    .map((name, index) => {
      const seen = answered.map(({ value }) => value[index]).filter((lock) => lock != null)
      return judge(ensemble, name, seen, failed.length)
    })
    .filter((found) => found !== null)
}

async function locksAt(node: RedlockNode, keys: readonly string[]): Promise<readonly (SeenLock | null)[]> {
  const locks: (SeenLock | null)[] = []
  for (let from = 0; from < keys.length; from += LARGEST_CALL) {
    const part = keys.slice(from, from + LARGEST_CALL)
    const [now, ...seen] = (await node.run(lookScript, part, [])) as readonly RedisReply[]
    for (let at = 0; at < 2 * part.length; at += 2) {
      const [value, left] = [seen[at], Number(seen[at + 1])]
      const leftMs = left < 0 ? Number.POSITIVE_INFINITY : left
      locks.push(
        typeof value === 'string' ? { value, record: parseLock(value), nowMs: Number(now), leftMs } : null,
      )
    }
  }
  return locks
}

function judge({ quorum }: Ensemble, name: string, seen: readonly SeenLock[], silent: number): Found | null {
  const groups = Map.groupBy(seen, ({ record, value }) =>
    record.kind === 'held' ? `${record.attempt}|${record.session}` : value,
  )
  for (const group of groups.values()) {
    const [first] = group
    if (first === undefined || group.length + silent < quorum) continue
    // The majority has it until the first of them ends; nothing is known of nodes that do not answer.
    const ends = group.map(({ leftMs }) => leftMs).sort((a, b) => b - a)
    const leftMs = ends[Math.min(quorum, ends.length) - 1] ?? 0
    const holder = holderOf(first, leftMs)
    const state = {
      name,
      capacity: LOCK_CAPACITY,
      waiters: [],
      holders: holder === null ? [] : [holder],
      closedForMs: holder === null ? leftMs : 0,
      // Clocks may differ: a call that expires by this one reaches every node in time.
      atMs: Math.max(...seen.map(({ nowMs }) => nowMs)),
    }
    return { state, record: first.record, value: first.value }
  }
  return null
}

/** Null: the name is closed. */
function holderOf({ record, value, nowMs }: SeenLock, leftMs: number): HolderState | null {
  if (record.kind === 'foreign') return foreignHolder(digestOf(value), leftMs)
  if (record.kind === 'closed' || leftMs <= record.lockDelayMs) return null
  const [id, session] = [publicIdOf(record.attempt), publicIdOf(record.session)]
  return {
    ...claimState({ ...record, id, session, mode: 'exclusive', weight: LOCK_CAPACITY }),
    token: null,
    heldForMs: Math.max(0, nowMs - record.grantedAtMs),
    expiresInMs: leftMs - record.lockDelayMs,
  }
}
