/** For every guarantee at least one careless change to the library that takes it away. */
import { library, type SourceBug } from '../bug.ts'

export const guaranteeBugs: readonly SourceBug[] = [
  {
    id: 'G1-weights',
    what: 'the weights of the holders are not counted when a request is admitted',
    edits: [
      {
        file: `${library}/kit/rules.ts`,
        find: ' && held + weight <= capacity',
        replaceBy: '',
      },
    ],
    foundBy: { suite: 'G1' },
  },
  {
    id: 'G2-token-per-name',
    what: 'a token is counted per name that is in use, and so starts again',
    edits: [
      {
        file: `${library}/engines/memory/name-table.ts`,
        find: 'const token = ++this.#lastToken',
        replaceBy: 'const token = BigInt(this.size.names)',
      },
    ],
    foundBy: { suite: 'G2' },
  },
  {
    id: 'G3-late-judgement',
    what: 'belief is judged by a timer only, not at every read',
    edits: [
      {
        file: `${library}/base/belief.ts`,
        find: 'if (!this.isOver() && this.timeLeftMs(now) <= 0)',
        replaceBy: 'if (!this.isOver() && this.timeLeftMs(now) <= -1_000)',
      },
    ],
    foundBy: { units: { file: 'locker/lease.test.ts', name: 'G3' } },
  },
  {
    id: 'G3-reply-time',
    what: 'validity counts from the reply instead of the send time',
    edits: [
      {
        file: `${library}/locker/keep-alive.ts`,
        find: 'if (loss === undefined) lease.confirm(result.since, result.ttlMs, now)',
        replaceBy: 'if (loss === undefined) lease.confirm(now, result.ttlMs, now)',
      },
    ],
    foundBy: { units: { file: 'locker/keeper.test.ts', name: 'G3' } },
  },
  {
    id: 'G6-forgotten-attempt',
    what: 'an acquire with an unknown outcome is forgotten instead of being abandoned',
    edits: [
      {
        file: `${library}/locker/attempt.ts`,
        find: "if (outcomeOf(error) === 'unknown') session.resolve(this.claim)\n    else session.forget(this)",
        replaceBy: 'session.forget(this)',
      },
      {
        file: `${library}/locker/attempt.ts`,
        find: '    this.cancel(reason)\n    session.resolve(this.claim)\n',
        replaceBy: '    this.cancel(reason)\n    session.forget(this)\n',
      },
    ],
    foundBy: { units: { file: 'locker/keeper.test.ts', name: 'G6' } },
  },
  {
    id: 'G7-release-by-name',
    what: 'a release looks for the name instead of for its own claim',
    edits: [
      {
        file: `${library}/engines/memory/name-table.ts`,
        find: '    return claim?.grantId === claimed.grantId ? claim : undefined\n',
        replaceBy:
          '    const [first] = this.find({ ...session, name: claimed.name })?.holders.values() ?? []\n    if (first !== undefined) return first\n    return claim?.grantId === claimed.grantId ? claim : undefined\n',
      },
    ],
    foundBy: { suite: 'G7' },
  },
  {
    id: 'G8-last-first',
    what: 'the last waiter is served first',
    edits: [
      {
        file: `${library}/engines/memory/queue.ts`,
        find: `  get first(): Member | undefined {
    return this.#first`,
        replaceBy: `  get first(): Member | undefined {
    return this.#last`,
      },
    ],
    foundBy: {
      units: { file: 'locker/locker.test.ts', name: 'G8' },
      suite: 'C69 C70 C72 C77 C84 C116 C147',
    },
  },
  {
    id: 'G8-overtaking',
    what: 'the queue does not hold back requests that come later',
    edits: [
      {
        file: `${library}/engines/memory/queue.ts`,
        find: '    return this.#length\n',
        replaceBy: '    return 0\n',
      },
    ],
    foundBy: { suite: 'C105 C117' },
  },
  {
    id: 'G9-wakes-all',
    what: 'a release wakes all waiters',
    edits: [
      {
        file: `${library}/kit/rules.ts`,
        find: '  while (first !== undefined && first.weight <= room) {\n    step.promote(name, first, data)\n    room -= first.weight\n    first = room > 0 ? step.firstWaiter(name) : undefined\n',
        replaceBy:
          '  while (first !== undefined) {\n    step.promote(name, first, data)\n    first = step.firstWaiter(name)\n',
      },
    ],
    foundBy: { units: { file: 'locker/locker.test.ts', name: 'G9' } },
  },
  {
    id: 'G10-no-wake-up',
    what: 'no waiter wakes up when the holder’s time is over',
    edits: [
      {
        file: `${library}/engines/memory/engine.ts`,
        find: 'const needed = table.waiting > 0 || this.#watchers > 0',
        replaceBy: 'const needed = this.#watchers > 0',
      },
    ],
    foundBy: { suite: 'G10' },
  },
  {
    id: 'G12-unchecked',
    what: 'what was required of the engine is not checked',
    edits: [
      {
        file: `${library}/open.ts`,
        find: 'for (const requirement of requirements) checkRequirement(backend, requirement)',
        replaceBy: '',
      },
    ],
    foundBy: { units: { file: 'open.test.ts', name: 'G12' } },
  },
  {
    id: 'G13-early-expiry',
    what: 'the engine gives a claim away before its time is up',
    edits: [
      {
        file: `${library}/engines/memory/name-table.ts`,
        find: 'session.expiresAtMs = Math.max(session.expiresAtMs, this.nowMs + session.ttlMs)',
        replaceBy: 'session.expiresAtMs = Math.max(session.expiresAtMs, this.nowMs + session.ttlMs * 0.9)',
      },
    ],
    foundBy: { suite: 'G13' },
  },
]
