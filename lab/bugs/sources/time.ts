/** Bugs about time: how long a lease may be believed in. */
import { base, locker, noCase, type SourceBug, sim } from '../bug.ts'

export const timeBugs: readonly SourceBug[] = [
  {
    id: 'T1-keep-alive',
    what: 'a renewal counts from its reply instead of from when it was sent',
    where: 'etcd keep-alive, Consul renew, madelson/DistributedLock',
    edits: [
      {
        file: `${locker}/keep-alive.ts`,
        find: '    session.prolonged(result.since, result.ttlMs, now)\n',
        replaceBy:
          '    result = { ...result, since: now }\n    session.prolonged(result.since, result.ttlMs, now)\n',
      },
    ],
    foundBy: {
      simulation: { seeds: 300, focus: { mode: 'safety', faults: ['delay', 'partition', 'pause'] } },
    },
  },
  {
    id: 'T2-late-check',
    what: 'loss is noticed only after twice the TTL',
    where: 'etcd; npm etcd3: two leaders for 5 s at TTL 5 s',
    edits: [
      {
        file: `${base}/belief.ts`,
        find: 'if (!this.isOver() && this.timeLeftMs(now) <= 0)',
        replaceBy: 'if (!this.isOver() && this.timeLeftMs(now) <= -this.#ttlMs)',
      },
      {
        file: `${locker}/keeper.ts`,
        find: 'this.#timeLeftMs(now) <= 0) this.end(',
        replaceBy: 'this.#timeLeftMs(now) <= -this.#ttlMs) this.end(',
      },
    ],
    note: 'both the lease and its session judge by the clock; either alone hides the other’s bug',
    foundBy: { simulation: { seeds: 60 } },
  },
  {
    id: 'T3-wall-only',
    what: 'elapsed time is taken from the wall clock alone',
    where: 'Redisson, Curator, all 21 npm lock packages read',
    edits: [
      {
        file: `${base}/clock.ts`,
        find: 'return Math.max(now.monotonicMs - since.monotonicMs, now.wallMs - since.wallMs)',
        replaceBy: 'return now.wallMs - since.wallMs',
      },
    ],
    foundBy: {
      simulation: { seeds: 200, focus: { mode: 'safety', faults: ['wall-step', 'partition', 'pause'] } },
    },
  },
  {
    id: 'T3-monotonic-only',
    what: 'elapsed time is taken from the monotonic clock alone, which stops in a suspended machine',
    where: noCase,
    edits: [
      {
        file: `${base}/clock.ts`,
        find: 'return Math.max(now.monotonicMs - since.monotonicMs, now.wallMs - since.wallMs)',
        replaceBy: 'return now.monotonicMs - since.monotonicMs',
      },
    ],
    foundBy: { simulation: { seeds: 200 }, units: { file: 'locker/lease.test.ts', name: 'G3' } },
  },
  {
    id: 'T4-asked-ttl',
    what: 'the TTL that was asked for is believed, not the one that was granted',
    where: `${noCase} (etcd and Consul change the TTL that is asked for)`,
    edits: [
      {
        file: `${sim}/backend.ts`,
        find: 'return new SimSession(this.#connection, id, answer.ttlMs, since, sentAtMs)',
        replaceBy: 'return new SimSession(this.#connection, id, ttlMs, since, sentAtMs)',
      },
      {
        file: `${sim}/backend.ts`,
        find: 'const { ttlMs, lost, unlisted } = answer',
        replaceBy: 'const { lost, unlisted } = answer\n    const { ttlMs } = this',
      },
    ],
    foundBy: { simulation: { seeds: 200 } },
  },
  {
    id: 'T6-expired-grant',
    what: 'a grant is handed out without a look at the time that is left of it',
    where: 'redlock 5 (−204 ms left), redis-semaphore, syncguard (800 ms expired)',
    edits: [
      { file: `${locker}/keeper.ts`, find: '    if (!this.isOpenAt(now)) return null\n', replaceBy: '' },
      {
        file: `${locker}/keeper.ts`,
        find: '    if (leftMs <= 0) {\n',
        replaceBy: '    if (leftMs <= 0 && leftMs > 0) {\n',
      },
      {
        file: `${locker}/keeper.ts`,
        find: 'return leftMs < ttlMs / defaults.renewalsPerTtl ? this.#confirmed(lease, attempt) : lease',
        replaceBy: 'return lease',
      },
    ],
    note: 'T17 as well: neither the session nor the validity is checked again after the wait',
    foundBy: { simulation: { seeds: 300 } },
  },
  {
    id: 'T8-timer-only',
    what: 'belief is judged by a timer only, so a blocked event loop prolongs it',
    where: noCase,
    edits: [
      {
        file: `${base}/belief.ts`,
        find: '  get state(): LeaseState {\n    this.judge()\n',
        replaceBy: '  get state(): LeaseState {\n',
      },
      {
        file: `${base}/belief.ts`,
        find: '    this.judge(now)\n    return this.isOver() ? 0 : this.timeLeftMs(now)\n',
        replaceBy: '    return this.isOver() ? 0 : Math.max(1, this.timeLeftMs(now))\n',
      },
    ],
    foundBy: { simulation: { seeds: 200 } },
  },
  {
    id: 'T16-frozen-server',
    what: 'the lease ends when a renewal has failed, and a renewal that is never answered never fails',
    where: 'redlock 5: TTL 2 s, not aborted at 8 s; redlock-universal: 7.4 s at TTL 3 s',
    edits: [
      {
        file: `${locker}/keeper.ts`,
        find: 'this.#deadlineTimer = this.clock.setTimer(delayMs, () => this.judgeAll(instantOf(this.clock)))',
        replaceBy: 'this.#deadlineTimer = { cancel: () => {} }',
      },
      {
        file: `${locker}/keep-alive.ts`,
        find: "{ what: 'keep-alive', timeoutMs: this.callLimitMs, stop: session.ended }",
        replaceBy: "{ what: 'keep-alive', timeoutMs: Number.POSITIVE_INFINITY, stop: session.ended }",
      },
    ],
    foundBy: { simulation: { seeds: 200 } },
  },
  {
    id: 'T64-own-acquire',
    what: 'a new lease on an old session is believed for a full TTL from its own acquire',
    where: 'found by testing this design on real engines',
    edits: [
      {
        file: `${sim}/backend.ts`,
        find: '      since: this.#prolongedAt,\n',
        replaceBy: '      since: instantOf(this.#connection.process),\n',
      },
      {
        file: `${locker}/keeper.ts`,
        find: '    const token = grant.token === null ? null : withEpoch(this.epoch, grant.token)\n',
        replaceBy:
          '    this.#since = fresherOf(now, this.#since, grant.since)\n    const token = grant.token === null ? null : withEpoch(this.epoch, grant.token)\n',
      },
    ],
    note: 'T65 as well: a push counts from its receipt. A backend’s mistake alone does no harm: the session’s own deadline ends its leases',
    foundBy: { simulation: { seeds: 200 } },
  },
]
