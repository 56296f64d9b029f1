/** Bugs about waiting, several locks at once, and ending. */
import { library, locker, type SourceBug, sim } from '../bug.ts'

export const waitingBugs: readonly SourceBug[] = [
  {
    id: 'T18-session-of-waiter',
    what: 'a waiter does not notice that its own session is gone',
    where: 'etcd #19597',
    edits: [
      {
        file: `${locker}/keeper.ts`,
        find: "    for (const each of others) if (each.state !== 'unresolved') each.lose()\n",
        replaceBy: '',
      },
    ],
    foundBy: { simulation: { seeds: 300 } },
  },
  {
    id: 'T19-lost-wake-up',
    what: 'a push that gets lost is never made good',
    where: 'Redisson #1763, #3891',
    edits: [
      {
        file: `${sim}/backend.ts`,
        find: "      this.#connection.turns.get(grant.attempt)?.({ kind: 'turn', grant })\n",
        replaceBy: '',
      },
      {
        file: `${locker}/keep-alive.ts`,
        find: "        attempt.answer({ kind: 'granted', grant })\n",
        replaceBy: '        continue\n',
      },
    ],
    foundBy: {
      simulation: { seeds: 300, focus: { mode: 'liveness', faults: ['lost-pushes', 'partition'] } },
    },
  },
  {
    id: 'T20-dead-waiter',
    what: 'a waiter whose session has ended keeps its position in the queue',
    where: 'Redisson #1104, #2278, #2883, #5019',
    edits: [
      {
        file: `${sim}/engine/engine.ts`,
        find: '    for (const claim of [...session.claims.values()]) {\n',
        replaceBy:
          '    for (const claim of [...session.claims.values()].filter(({ token }) => token !== null)) {\n',
      },
    ],
    foundBy: { simulation: { seeds: 100 } },
  },
  {
    id: 'T20-cancelled-waiter',
    what: 'a waiter that gave up stays in the queue, and is granted what it does not want',
    where: 'Redisson #1104, #2278, #2883, #5019',
    edits: [
      {
        file: `${library}/kit/rules.ts`,
        find: '  if (step.deleteClaim(owner, claim)) promote(step, nameOf(owner, claim))\n',
        replaceBy: '',
      },
    ],
    foundBy: { suite: 'T20' },
  },
  {
    id: 'T22-sessions',
    what: 'concurrent first acquires each open a session',
    where: 'hazelcast-nodejs #898',
    edits: [
      {
        file: `${locker}/sessions.ts`,
        find: '    const shared = this.#opening.get(kind)\n',
        replaceBy: '    const shared = this.#opening.get(Symbol() as never)\n',
      },
    ],
    foundBy: { simulation: { seeds: 200 } },
  },
  {
    id: 'T25-not-undone',
    what: 'what was won of several locks is not given back when the rest cannot be had',
    where: 'redlock 5, sesamecare (minority wins not undone)',
    edits: [
      {
        file: `${locker}/acquiring.ts`,
        find: '      this.#giveBack(records)\n      throw error\n',
        replaceBy: '      throw error\n',
      },
    ],
    note: 'the nearest thing to it where there is no quorum: several names instead of several nodes',
    foundBy: { simulation: { seeds: 100 } },
  },
  {
    id: 'T27-deaf-backoff',
    what: 'an abort is not noticed while the next try is waited for',
    where: 'syncguard: 3 s',
    edits: [
      {
        file: `${locker}/acquiring.ts`,
        find: 'next.onCancel(() => pause.reject(next.reason))',
        replaceBy: '() => {}',
      },
    ],
    foundBy: { simulation: { seeds: 200 } },
  },
  {
    id: 'T45-owner-per-object',
    what: 'the owner is the locker, not the acquisition: the first to release takes the second’s lock along',
    where: 'verrou',
    edits: [
      {
        file: `${locker}/attempt.ts`,
        find: 'const attempt = newAttempt(random)',
        replaceBy:
          "const attempt = [this.#host.context.holder, this.wanted.request.name].join('-').padEnd(22, '_')",
      },
    ],
    foundBy: { simulation: { seeds: 60 } },
  },
  {
    id: 'T53-body-still-runs',
    what: 'a closing locker releases before the work has stopped',
    where: 'kubernetes #139991',
    edits: [
      {
        file: `${locker}/locker.ts`,
        find: '    await this.#within(this.#graceMs, unlessCancelled(bodies, this.#graceIsOver))\n',
        replaceBy: '',
      },
    ],
    foundBy: { simulation: { seeds: 300 } },
  },
  {
    id: 'T54-time-out-each',
    what: 'each of several locks gets the full time-out',
    where: 'Curator, Redisson',
    edits: [
      {
        file: `${locker}/acquiring.ts`,
        find: 'const leftMs = () => waitMs - (this.context.clock.monotonicMs() - startMs)',
        replaceBy: 'const leftMs = () => Math.max(waitMs, -startMs)',
      },
    ],
    foundBy: { simulation: { seeds: 100 } },
  },
  {
    id: 'T54-not-verified',
    what: 'of several locks, the earlier ones expire while the later ones are awaited, and are not checked again',
    where: 'Curator, Redisson',
    edits: [
      {
        file: `${locker}/acquiring.ts`,
        find: 'if (records.every((record) => record.isLive)) return records',
        replaceBy: 'if (records.length > 0) return records',
      },
    ],
    foundBy: { simulation: { seeds: 300 } },
  },
]
