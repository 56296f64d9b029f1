/**
 * Defaults of options that users may leave out, and limits of what they pass; `docs/reference/defaults.md` cites all of it and a test
 * asserts it. Numbers that only tune something stand beside the code that they tune, and those of one engine in its
 * backend's `info` and page.
 */
export const defaults = {
  ttlMs: 15_000,
  waitMs: 30_000,
  warnHoldMs: 60_000,
  /** How long one call to the engine may take before its outcome counts as unknown. */
  callTimeoutMs: 5_000,
  /** Polling, where an engine cannot push: every `pollMs` plus up to `pollJitterMs`. */
  pollMs: 200,
  pollJitterMs: 200,
  /** Where the engine cannot push events, `watch` compares lists at this interval. */
  watchIntervalMs: 3_000,
  /** Names or sessions on one page. */
  pageItems: 1_000,
  /** Renewal every third of the TTL, give or take this share of it, so that processes do not fall in step. */
  renewalsPerTtl: 3,
  renewalJitter: 0.1,
  /** Drift of two clocks against each other within one TTL, at most. 0.01: 300 ms of a TTL of 30 s. */
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
  /** A guard forgets names that were not used for this long, and keeps one floor per issuer instead. */
  guardForgetAfterMs: 30 * 86_400_000,
  /** `optimisticUpdate`: how often it tries again, after a pause of up to so much. */
  optimisticRetries: 3,
  optimisticJitterMs: 100,
  /** For how long the result of an idempotency key is kept. */
  idempotentKeepMs: 86_400_000,
  /** For how long a claimed job is hidden from others, how often it is started at most, and how long it is kept when done. */
  jobVisibilityMs: 30_000,
  jobMaxStarts: 5,
  jobKeepMs: 86_400_000,
} as const

/** How large what users pass may be. */
export const limits = {
  nameBytes: 255,
  namespaceBytes: 100,
  holderBytes: 255,
  noteBytes: 1_024,
  dataBytes: 4_096,
  issuerBytes: 400,
  keyBytes: 1_024,
  fenceTextBytes: 4_096,
  minFenceSecretBytes: 32,
  maxWaiters: 2 ** 31 - 1,
  maxCapacity: 1_000_000,
  /** The longest timer of the system, about 24 days. */
  timerMs: 2 ** 31 - 1,
  maxPageItems: 10_000,
  /** A cursor may name every transaction that is open. */
  cursorBytes: 20_480,
  maxEpoch: 2_047,
  /** The longest result, failure or job that is stored. */
  storedBytes: 1_048_576,
} as const

/** The drift that most engines declare: 1 % of the TTL + 2 ms. */
export function defaultDriftMs(ttlMs: number): number {
  return ttlMs * defaults.driftShareOfTtl + defaults.driftFloorMs
}
