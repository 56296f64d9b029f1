/** Bugs about answers that never came, and about what is left behind. */
import { base, type Edit, locker, noCase, type SourceBug, sim } from '../bug.ts'

/** The keep-alive finds and removes what the session holds and no lease knows, and so heals most of these bugs. */
const noSecondLook: Edit = {
  file: `${locker}/keep-alive.ts`,
  find: '    for (const claim of result.unlisted) if (!attempts.has(claim.attempt)) session.resolve(claim)\n',
  replaceBy: '',
}
const givenUp = '    this.cancel(reason)\n    session.resolve(this.claim)\n'
const healed =
  'planted together with a keep-alive that does not look for leftovers, which alone would heal it'

export const ambiguityBugs: readonly SourceBug[] = [
  {
    id: 'T12-false-loss',
    what: 'one renewal without an answer counts as the loss of the lease',
    where: 'dynamolock #280',
    edits: [
      {
        file: `${locker}/keep-alive.ts`,
        find: '    for (const lease of held) lease.jeopardize(error, now)\n',
        replaceBy: "    for (const lease of held) lease.lose('unreachable')\n",
      },
    ],
    foundBy: { simulation: { seeds: 60 } },
  },
  {
    id: 'T14-cancelled-cleanup',
    what: 'the cleanup of a cancelled acquire is cancelled together with it',
    where: 'redsync; syncguard: lock held 30 s',
    edits: [
      {
        file: `${locker}/attempt.ts`,
        find: givenUp,
        replaceBy: '    this.cancel(reason)\n    session.forget(this)\n',
      },
      noSecondLook,
    ],
    note: healed,
    foundBy: { simulation: { seeds: 200 } },
  },
  {
    id: 'T15-late-acquire',
    what: 'an acquire that timed out at the client lands later, and is never released',
    where: 'redlock-universal: orphan with 29.8 s left; simple-redis-mutex',
    edits: [
      {
        file: `${locker}/attempt.ts`,
        find: givenUp,
        replaceBy: '    this.cancel(reason)\n    session.forget(this)\n',
      },
      {
        file: `${locker}/attempt.ts`,
        find: "if (outcomeOf(error) === 'unknown') session.resolve(this.claim)\n    else session.forget(this)",
        replaceBy: 'session.forget(this)',
      },
      noSecondLook,
    ],
    note: healed,
    foundBy: { simulation: { seeds: 200 } },
  },
  {
    id: 'T29-immortal',
    what: 'a release that failed is forgotten, and the session’s renewals keep the lock for ever',
    where: 'Redisson #7272 (renewal outlives the release)',
    edits: [
      {
        file: `${locker}/keeper.ts`,
        find: '      this.resolve(claim, keepForMs)\n',
        replaceBy: '      this.attempts.delete(claim.attempt)\n',
      },
      noSecondLook,
    ],
    note: `the nearest thing to it that our renewals allow; ${healed}`,
    foundBy: { simulation: { seeds: 200 } },
  },
  {
    id: 'T73-late-original',
    what: 'the undo says "not held", then the delayed original lands on a session that is still alive',
    where: 'found by testing this design on real engines (clients re-send by default)',
    edits: [
      {
        file: `${sim}/engine/engine.ts`,
        find: "    this.#journal.set(session.marks, attempt, 'abandoned')\n",
        replaceBy: '',
      },
      noSecondLook,
    ],
    note: healed,
    foundBy: { simulation: { seeds: 400 } },
  },
  {
    id: 'T30-renewal-ends',
    what: 'one failed renewal ends the renewal loop silently',
    where: 'redis-semaphore #199, node-redisson, ShedLock',
    edits: [
      {
        file: `${locker}/keep-alive.ts`,
        find: '    this.#schedule.soon()\n',
        replaceBy: '',
      },
    ],
    foundBy: { simulation: { seeds: 100 } },
  },
  {
    id: 'T31-engine',
    what: 'a renewal brings an expired lock back, also from its next holder',
    where: 'redsync SetNXOnExtend, redis-semaphore #175',
    edits: [
      {
        file: `${sim}/engine/engine.ts`,
        find: `    const session = this.sessions.get(request.session)
    if (session === undefined) return { kind: 'gone' }
    this.#prolong(session, nowMs)
`,
        replaceBy: `    let session = this.sessions.get(request.session)
    if (session === undefined) {
      this.#open({ kind: 'open', session: request.session, ttlMs: 4_000, holder: 'back' }, request.session.slice(0, 4), nowMs)
      session = this.sessions.get(request.session) as SessionState
      for (const { attempt, name: of } of request.held) {
        const name = this.names.get(of) ?? this.#addName(of, 2 ** 30)
        const claim = { attempt, name: of, session, mode: 'exclusive' as const, weight: name.capacity, lockDelayMs: 0, token: null, previousData: undefined }
        this.#journal.set(session.claims, attempt, claim)
        this.#grant(claim, name)
      }
    }
    this.#prolong(session, nowMs)
`,
      },
    ],
    foundBy: { simulation: { seeds: 200 } },
  },
  {
    id: 'T31-revived',
    what: 'an answer that comes after the deadline revives a lease that was lost',
    where: 'redsync SetNXOnExtend, redis-semaphore #175',
    edits: [
      {
        file: `${base}/belief.ts`,
        find: '    if (!this.isLiveAt(now)) return false\n    this.#since = fresherOf(',
        replaceBy: '    this.#since = fresherOf(',
      },
    ],
    foundBy: {
      simulation: { seeds: 60, rule: 'G4' },
      units: { file: 'locker/lease-states.test.ts', name: 'G4' },
    },
  },
  {
    id: 'T29-deadline-timer',
    what: 'the deadline of a wait is not cancelled when the wait is over, and keeps the process alive',
    where: noCase,
    edits: [
      {
        file: `${locker}/attempt.ts`,
        find: '  end(): void {\n    this.#timer?.cancel()\n',
        replaceBy: '  end(): void {\n',
      },
      {
        file: `${locker}/attempt.ts`,
        find: "    this.state = 'over'\n    this.#timer?.cancel()\n",
        replaceBy: "    this.state = 'over'\n",
      },
    ],
    foundBy: { simulation: { seeds: 20, rule: 'T29' } },
  },
  {
    id: 'T29-session-timer',
    what: 'a session’s timer outlives its locker',
    where: noCase,
    edits: [
      {
        file: `${locker}/keeper.ts`,
        find: '    this.#deadlineTimer?.cancel()\n    this.#onEnd(this)',
        replaceBy: '    this.#onEnd(this)',
      },
    ],
    foundBy: { simulation: { seeds: 20, rule: 'T29' } },
  },
  {
    id: 'T29-max-hold',
    what: 'a lease is renewed for as long as its process lives, whatever its maxHoldMs',
    where: noCase,
    edits: [
      {
        file: `${locker}/lease.ts`,
        find: 'Math.min(engineLeftMs, this.terms.maxHoldMs - this.#heldForMsAt(now))',
        replaceBy: 'engineLeftMs',
      },
    ],
    foundBy: { simulation: { seeds: 40, rule: 'max-hold' } },
  },
  {
    id: 'T32-hot-renewal',
    what: 'a renewal that failed is tried again at once',
    where: 'redlock-universal: 8,476 calls in 1 s',
    edits: [
      {
        file: `${locker}/renewal-schedule.ts`,
        find: 'this.#set(soonMs * (0.5 + this.#context.random.fraction() / 2))',
        replaceBy: 'this.#set(soonMs * 0)',
      },
    ],
    foundBy: { simulation: { seeds: 100, rule: 'T32', focus: { faults: ['crash-engine', 'pause'] } } },
  },
  {
    id: 'T34-unnoticed',
    what: 'a lock that an operator removed is believed in for ever',
    where: noCase,
    edits: [
      {
        file: `${locker}/keep-alive.ts`,
        find: 'const lost = new Map(result.lost.map((claim) => [claim.attempt, claim]))',
        replaceBy: 'const lost = new Map<string, LostClaim>()',
      },
    ],
    foundBy: { simulation: { seeds: 200 } },
  },
  {
    id: 'T47-release-throws',
    what: 'a failed release throws, and replaces what the body returned',
    where: 'redlock 5, sesamecare',
    edits: [
      {
        file: `${locker}/keeper.ts`,
        find: "return 'unknown'\n    } finally {",
        replaceBy: 'throw error\n    } finally {',
      },
    ],
    foundBy: { simulation: { seeds: 100 }, units: { file: 'locker/keeper.test.ts', name: 'G11' } },
  },
]
