/** Bugs of engines and of what stands before the resource: tokens, owners, expiry, guards. */
import { library, noCase, type SourceBug, sim } from '../bug.ts'

const engine = `${sim}/engine/engine.ts`
const guardedRead = '    const before = this.#memory\n'

export const engineBugs: readonly SourceBug[] = [
  {
    id: 'T23-no-lock-delay',
    what: 'a name is free as soon as its holder has expired, whatever lock-delay was asked for',
    where: noCase,
    edits: [
      {
        file: engine,
        find: 'if (delayMs > 0) this.#keepClosed(',
        replaceBy: 'if (delayMs < 0) this.#keepClosed(',
      },
    ],
    foundBy: { simulation: { seeds: 100, rule: 'T23' } },
  },
  {
    id: 'T23-forgotten-delay',
    what: 'a holder that gives up by itself forgets the lock-delay that it has asked for',
    where: noCase,
    edits: [
      {
        file: `${library}/locker/keeper.ts`,
        find: 'this.resolve(claim, lease.keepClosedMs)',
        replaceBy: 'this.resolve(claim)',
      },
    ],
    foundBy: { simulation: { seeds: 200, rule: 'T23' } },
  },
  {
    id: 'T37-token-apart',
    what: 'the token is drawn apart from the grant, so the later holder may have the lower one',
    where: 'simple-redis-mutex (SET, then INCR)',
    edits: [
      {
        file: engine,
        find: "    this.#journal.assign(name, 'line', [...name.line, claim])\n",
        replaceBy:
          "    this.#journal.assign(name, 'line', [...name.line, claim])\n    this.drawn.set(attempt, this.#drawToken())\n",
      },
      {
        file: engine,
        find: "    this.#journal.assign(claim, 'token', this.#drawToken())\n",
        replaceBy:
          "    this.#journal.assign(claim, 'token', this.drawn.get(claim.attempt) ?? this.#drawToken())\n",
      },
      {
        file: engine,
        find: '  readonly #options: EngineOptions\n',
        replaceBy: '  readonly drawn = new Map<string, bigint>()\n  readonly #options: EngineOptions\n',
      },
    ],
    foundBy: { simulation: { seeds: 60 } },
  },
  {
    id: 'T38-token-restarts',
    what: 'tokens start again at 1 after the engine has lost its data',
    where: 'syncguard after FLUSHALL; Redisson MultiLock (a TTL on the counter)',
    edits: [
      { file: engine, find: 'this.#nextToken = this.#reservedUpTo + 1n', replaceBy: 'this.#nextToken = 1n' },
    ],
    foundBy: { simulation: { seeds: 60 } },
  },
  {
    id: 'T68-unsynced',
    what: 'answers leave before they are synced, and a crash forgets them',
    where: 'found by testing this design on PostgreSQL with synchronous_commit = off',
    edits: [
      {
        file: `${sim}/server.ts`,
        find: '      this.scheduler.at(atMs, () => {\n',
        replaceBy: '      this.scheduler.at(nowMs, () => {\n',
      },
    ],
    foundBy: { simulation: { seeds: 400 } },
  },
  {
    id: 'T40-writes-only',
    what: 'the guard checks writes and not reads',
    where: 'a Redlock clock-jump run lost 10 % of its updates',
    edits: [
      {
        file: `${sim}/resource.ts`,
        find: guardedRead,
        replaceBy: `    if (visit.kind === 'read') return this.#visitRegister(this.#guarded, 'guarded', visit)\n${guardedRead}`,
      },
    ],
    foundBy: { simulation: { seeds: 400 } },
  },
  {
    id: 'T41-forgetful-guard',
    what: 'the guard keeps its memory in the process, and forgets at a restart',
    where: noCase,
    edits: [
      {
        file: `${sim}/resource.ts`,
        find: '      forMs,\n      () => {},\n',
        replaceBy: '      forMs,\n      () => this.#memory.names.clear(),\n',
      },
    ],
    foundBy: {
      simulation: {
        seeds: 200,
        focus: { mode: 'guard', faults: ['crash-resource', 'late-write', 'early-expiry', 'pause'] },
      },
    },
  },
  {
    id: 'T41-older-token',
    what: 'the guard accepts an older token',
    where: noCase,
    edits: [
      {
        file: `${library}/guards/rule.ts`,
        find: "if (fence.token < highest.token) return stale(highest.token, 'a newer holder has been here')",
        replaceBy: '',
      },
    ],
    foundBy: { simulation: { seeds: 400 }, units: { file: 'guards/memory.test.ts', name: 'G5' } },
  },
  {
    id: 'T41-reader-lifts-floor',
    what: 'a reader that brings a forgotten name back lets older readers in, although a writer came between',
    where: noCase,
    edits: [
      {
        file: `${library}/guards/rule.ts`,
        find: 'exclusiveBelow(fence, floor))',
        replaceBy: 'null)',
      },
    ],
    foundBy: {
      simulation: {
        seeds: 200,
        rule: 'G5',
        focus: { mode: 'guard', faults: ['delete-name', 'force-release', 'pause'] },
      },
      units: { file: 'guards/memory.test.ts', name: 'G5' },
    },
  },
  {
    id: 'T46-no-owner-check',
    what: 'a release deletes the name’s lock, also that of another holder',
    where: 'redis-lock, redis-leader, node-resque',
    edits: [
      {
        file: engine,
        find: '    return claim?.token == null || String(claim.token) !== grantId ? undefined : claim\n',
        replaceBy:
          '    void grantId\n    return claim?.token != null ? claim : [...this.names.values()].flatMap(({ holders }) => [...holders.values()])[0]\n',
      },
    ],
    foundBy: { simulation: { seeds: 200 } },
  },
  {
    id: 'T66-stale-expiry',
    what: 'a take-over reads the session’s old expiry while the keep-alive is being committed',
    where: 'found by testing this design on PostgreSQL',
    edits: [
      {
        file: engine,
        find: "    this.#journal.assign(session, 'endsAtMs', Math.max(session.endsAtMs, endsAtMs))\n",
        replaceBy:
          "    if (session.endsAtMs - nowMs > session.ttlMs * 0.02 || session.endsAtMs === 0)\n      this.#journal.assign(session, 'endsAtMs', Math.max(session.endsAtMs, endsAtMs))\n",
      },
    ],
    note: 'a keep-alive in the last fiftieth of the TTL is answered, but not seen where the expiry is judged',
    foundBy: {
      simulation: { seeds: 400, focus: { mode: 'safety', faults: ['delay', 'pause', 'freeze-engine'] } },
    },
  },
  {
    id: 'T70-re-entrant',
    what: 'the engine is re-entrant by session: two tasks of one process both hold',
    where: 'found by testing this design: Consul acquire, pg_try_advisory_lock',
    edits: [
      {
        file: engine,
        find: '    const hasRoom =\n      !isClosed',
        replaceBy:
          '    const isOurs = [...name.holders.values()].some((holder) => holder.session === session)\n    const hasRoom = isOurs ||\n      !isClosed',
      },
    ],
    foundBy: { simulation: { seeds: 100 } },
  },
  {
    id: 'T72-sleeping-waiter',
    what: 'a semaphore’s waiter sleeps while another holder than the one it watches releases',
    where: 'found by testing this design on real engines',
    edits: [
      {
        file: engine,
        find: '        if (heldWeight(name) + first.weight > name.capacity) break\n',
        replaceBy: '        if (name.holders.size > 0) break\n',
      },
    ],
    foundBy: { simulation: { seeds: 200, focus: { mode: 'liveness', faults: [] } } },
  },
  {
    id: 'T5-takers-ttl',
    what: 'the taker judges the holder by its own, shorter TTL',
    where: 'client-go',
    edits: [
      {
        file: engine,
        find: '    const endsAtMs = nowMs + session.ttlMs + this.#options.lateByMs()\n',
        replaceBy: '    const endsAtMs = nowMs + session.ttlMs * 0.7 + this.#options.lateByMs()\n',
      },
    ],
    note: 'planted as an engine that counts with 0.7 of the TTL',
    foundBy: { simulation: { seeds: 60 } },
  },
  {
    id: 'T31-memory',
    what: 'a keep-alive answers for a session that has expired',
    where: 'redsync, redis-semaphore #175',
    edits: [
      {
        file: `${library}/kit/rules.ts`,
        find: 'if (!step.prolong(owner)) return null',
        replaceBy: 'if (!step.prolong(owner)) return { lost: [], granted: [], unlisted: [] }',
      },
    ],
    foundBy: { suite: 'T31' },
  },
  {
    id: 'T74-wrong-target',
    what: 'a force release aimed at one holder hits its successor',
    where: 'found by testing this design on real engines',
    edits: [
      {
        file: `${library}/engines/memory/name-table.ts`,
        find: '.filter(({ attempt }) => ids.includes(publicIdOf(attempt)))',
        replaceBy: '',
      },
    ],
    foundBy: { suite: 'T74' },
  },
  {
    id: 'T84-attempt-only',
    what: 'a keep-alive confirms the attempt, whatever its grant',
    where: 'found by simulating this design',
    edits: [
      {
        file: `${library}/kit/session.ts`,
        find: 'if (others.get(claim.attempt)?.grantId === claim.grantId) others.delete',
        replaceBy: 'if ((others.get(claim.attempt)?.grantId ?? null) !== null) others.delete',
      },
      {
        file: `${library}/engines/memory/name-table.ts`,
        find: 'return claim?.grantId === claimed.grantId ? claim : undefined',
        replaceBy: 'return claim !== undefined && claim.grantId !== null ? claim : undefined',
      },
    ],
    foundBy: { suite: 'T84' },
  },
  {
    id: 'T48-old-owner',
    what: 'what has expired is still shown, and counted, until the next call',
    where: 'verrou memory store (take-over keeps the old owner)',
    edits: [
      {
        file: `${library}/kit/rules.ts`,
        find: "flatMap((owner) => step.deleteSession(owner, 'expired'))",
        replaceBy: 'flatMap(() => [] as NameKey[])',
      },
    ],
    note: 'planted as an expiry that removes nothing',
    foundBy: { suite: 'T48' },
  },
]
