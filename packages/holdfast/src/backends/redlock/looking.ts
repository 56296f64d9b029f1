/**
 * What a majority of the nodes says about names. Where nodes do not answer, a name is shown as held if it may be held: a
 * server that is down is no reason to call a name free (T56).
 */

import { publicIdOf } from '../../base/ids.ts'
import { foreignId, type RedisReply } from '../../clients/redis/index.ts'
import { type Call, type HolderState, LOCK_CAPACITY, type NameState } from '../../spi.ts'
import type { Ensemble } from './ensemble.ts'
import { type LockRecord, parseLock, publicIdOfLock } from './layout.ts'
import type { RedlockNode } from './node.ts'
import { lookScript } from './scripts.ts'

/** One node's word on one name. */
interface Sight {
  readonly record: LockRecord
  readonly value: string
  readonly nowMs: number
  /** Infinite if it never ends. */
  readonly leftMs: number
}

/** Whoever holds a name by the word of a majority, or may do so. */
export interface Found {
  readonly state: NameState
  readonly record: LockRecord
}

const LARGEST_CALL = 500

/** What a holder is called that took the key with another client than this one. */
const FOREIGN = '(another client)'

export async function lookAt(ensemble: Ensemble, name: string, call: Call): Promise<Found | null> {
  ensemble.begin(call)
  const key = ensemble.layout.lock(name)
  const poll = ensemble.poll(async (node) => (await sightsOf(node, [key])).get(key) ?? null)
  await poll.until(() => false, call)
  const answered = poll.answered.length
  if (answered < ensemble.quorum)
    throw ensemble.unavailable(`looking at ${JSON.stringify(name)}: answered`, answered, poll, 'not-applied')
  const sights = poll.answered.map(({ value }) => value).filter((sight) => sight !== null)
  return judge(ensemble, name, sights, poll.failed.length)
}

/** The judged states of these names, as far as they are in use. */
export async function lookAtAll(
  ensemble: Ensemble,
  names: readonly string[],
  call: Call,
): Promise<readonly NameState[]> {
  if (names.length === 0) return []
  const keys = names.map((name) => ensemble.layout.lock(name))
  const poll = ensemble.poll((node) => sightsOf(node, keys))
  await poll.until(() => false, call)
  const answered = poll.answered.length
  if (answered < ensemble.quorum)
    throw ensemble.unavailable('looking at names: answered', answered, poll, 'not-applied')
  return names
    .map((name, index) => {
      const sights = poll.answered.map(({ value }) => value.get(keys[index] ?? ''))
      return judge(
        ensemble,
        name,
        sights.filter((sight) => sight !== undefined),
        poll.failed.length,
      )?.state
    })
    .filter((state) => state !== undefined)
}

async function sightsOf(node: RedlockNode, keys: readonly string[]): Promise<Map<string, Sight>> {
  const sights = new Map<string, Sight>()
  for (let from = 0; from < keys.length; from += LARGEST_CALL) {
    const part = keys.slice(from, from + LARGEST_CALL)
    const [now, ...seen] = (await node.run(lookScript, part, [])) as readonly RedisReply[]
    part.forEach((key, index) => {
      const [value, left] = [seen[2 * index], Number(seen[2 * index + 1])]
      if (typeof value !== 'string') return
      const leftMs = left < 0 ? Number.POSITIVE_INFINITY : left
      sights.set(key, { value, record: parseLock(value), nowMs: Number(now), leftMs })
    })
  }
  return sights
}

function judge({ quorum }: Ensemble, name: string, sights: readonly Sight[], silent: number): Found | null {
  const groups = Map.groupBy(sights, ({ record, value }) =>
    record.kind === 'held' ? `${record.attempt}|${record.session}` : value,
  )
  for (const group of groups.values()) {
    const [first] = group
    if (first === undefined || group.length + silent < quorum) continue
    // The majority has it until the first of them lets go; of those that do not answer nothing is known.
    const ends = group.map(({ leftMs }) => leftMs).sort((a, b) => b - a)
    const leftMs = ends[Math.min(quorum, ends.length) - 1] ?? 0
    return {
      record: first.record,
      state: {
        name,
        capacity: LOCK_CAPACITY,
        waiters: [],
        ...stateOf(first, leftMs),
        // Clocks may differ: a call that expires by this one reaches every node in time.
        atMs: Math.max(...sights.map(({ nowMs }) => nowMs)),
      },
    }
  }
  return null
}

function stateOf(
  { record, nowMs }: Sight,
  leftMs: number,
): { readonly holders: readonly HolderState[]; readonly closedForMs: number } {
  if (record.kind === 'closed') return { holders: [], closedForMs: leftMs }
  if (record.kind === 'held' && leftMs <= record.lockDelayMs) return { holders: [], closedForMs: leftMs }
  const exclusive = { mode: 'exclusive', weight: LOCK_CAPACITY, token: null } as const
  if (record.kind === 'foreign')
    return {
      holders: [
        {
          ...exclusive,
          id: foreignId(record.value),
          holder: FOREIGN,
          // It has none of ours.
          session: '',
          ttlMs: 0,
          heldForMs: 0,
          expiresInMs: leftMs,
        },
      ],
      closedForMs: 0,
    }
  const holder = {
    ...exclusive,
    id: publicIdOfLock(record),
    holder: record.holder,
    ...(record.note !== undefined && { note: record.note }),
    ...(record.owner !== undefined && { owner: record.owner }),
    session: publicIdOf(record.session),
    ttlMs: record.ttlMs ?? 0,
    heldForMs: Math.max(0, nowMs - record.grantedAtMs),
    expiresInMs: leftMs - record.lockDelayMs,
  }
  return { holders: [holder], closedForMs: 0 }
}
