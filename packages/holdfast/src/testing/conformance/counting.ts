/** Checks of times: a failure prints the number, its limit, and what it is about. */
import assert from 'node:assert/strict'
import type { Instant } from '../../base/clock.ts'
import type { Actor } from './actor.ts'

export interface Counted {
  readonly since: Pick<Instant, 'monotonicMs'>
  readonly ttlMs: number
}

/** The bounds are on the clock of the clients, or lengths of time. */
export function expectMs(what: string, actualMs: number, bounds: { min?: number; max?: number }): void {
  const { min = Number.NEGATIVE_INFINITY, max = Number.POSITIVE_INFINITY } = bounds
  assert(actualMs >= min, `${what}: ${actualMs} ms, expected at least ${min} ms`)
  assert(actualMs <= max, `${what}: ${actualMs} ms, expected at most ${max} ms`)
}

/**
 * A grant where claims ride on their session (T64, new leases on old sessions): it counts from the last prolongation at the latest, for the TTL of the
 * session. The send time is the suite's own, because an engine that expires late may show a claim for longer than it counts.
 */
export function expectToCountFromSession(what: string, actor: Actor, { since, ttlMs }: Counted): void {
  const max = actor.prolongedMs + actor.stage.world.resolutionMs
  expectMs(`${what} counts from`, since.monotonicMs, { max })
  assert.equal(
    ttlMs,
    actor.session.ttlMs,
    `${what} has a TTL of ${ttlMs} ms, and its session ${actor.session.ttlMs} ms`,
  )
}
