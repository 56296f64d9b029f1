/** Every default and limit, in one place; `docs/reference/defaults.md` cites them and a test asserts them. */
export const defaults = {
  ttlMs: 15_000,
  waitMs: 30_000,
  warnHoldMs: 60_000,
  /** How long one call to the engine may take before its outcome counts as unknown. */
  callTimeoutMs: 5_000,
  /** Polling, where an engine cannot push: every `pollMs` plus up to `pollJitterMs`. */
  pollMs: 200,
  pollJitterMs: 200,
  /** Renewal every third of the TTL, give or take this share of it, so that processes do not fall in step. */
  renewalsPerTtl: 3,
  renewalJitter: 0.1,
  /** What two clocks may drift apart within one TTL. */
  driftShareOfTtl: 0.01,
  driftFloorMs: 2,
  /** A session that carries nothing for this long is closed. */
  idleSessionMs: 60_000,
  maxSessions: 32,
  /** A session that carries this many marks of abandoned attempts is replaced. */
  maxAbandonedPerSession: 10_000,
  /** How long `close` waits for the bodies of `withLease`. */
  closeGraceMs: 10_000,
  namespace: 'default',
} as const

export const limits = {
  nameBytes: 255,
  namespaceBytes: 100,
  holderBytes: 255,
  noteBytes: 1_024,
  dataBytes: 4_096,
  issuerBytes: 400,
  maxCapacity: 1_000_000,
  maxEpoch: 2_047,
} as const

/** The drift that most engines declare: 1 % of the TTL + 2 ms. */
export function defaultDriftMs(ttlMs: number): number {
  return ttlMs * defaults.driftShareOfTtl + defaults.driftFloorMs
}
