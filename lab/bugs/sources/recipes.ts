/** Bugs of re-entrancy, lock order, single flight and Web Locks. Their suites must notice them, run on memory. */
import { library, type SourceBug } from '../bug.ts'

const recipes = `${library}/recipes`
const suite = (recipe: string) => `../test/recipes/${recipe}.test.ts`

export const recipeBugs: readonly SourceBug[] = [
  {
    id: 'G1-reentrant-strangers',
    what: 'every task of the process enters what one of them holds',
    edits: [
      {
        file: `${recipes}/reentrant.ts`,
        find: '    let scope = this.#scopes.getStore()\n',
        replaceBy: '    let scope = this.#scopes.getStore() ?? this.last\n',
      },
      {
        file: `${recipes}/reentrant.ts`,
        find: '        const lease = claim.enter()\n',
        replaceBy: '        const lease = claim.enter()\n        this.last = { claim, outer }\n',
      },
      {
        file: `${recipes}/reentrant.ts`,
        find: '  constructor(locker: Locker) {\n',
        replaceBy: '  last: Scope | undefined\n  constructor(locker: Locker) {\n',
      },
    ],
    foundBy: { units: { file: suite('reentrant'), name: 'G1' } },
  },
  {
    id: 'T39-reentrant-early-release',
    what: 'the engine’s lease is released while one lease is left over it',
    edits: [
      {
        file: `${recipes}/reentrant.ts`,
        find: 'if (--this.#count > 0) return',
        replaceBy: 'if (--this.#count > 1) return',
      },
    ],
    foundBy: { units: { file: suite('reentrant'), name: 'zero' } },
  },
  {
    id: 'G4-reentrant-scope-revived',
    what: 'a task that outlived its scope enters a claim that was released',
    edits: [
      {
        file: `${recipes}/reentrant.ts`,
        find: 'scope.claim.name === name && scope.claim.isOpen',
        replaceBy: 'scope.claim.name === name',
      },
    ],
    foundBy: { units: { file: suite('reentrant'), name: 'scope that is over' } },
  },
  {
    id: 'G4-reentrant-after-loss',
    what: 'a lease that was lost is entered again',
    edits: [
      {
        file: `${recipes}/reentrant.ts`,
        find: "    if (held.state === 'lost') throw held.signal.reason\n",
        replaceBy: '',
      },
    ],
    foundBy: { units: { file: suite('reentrant'), name: 'loses all' } },
  },
  {
    id: 'T54-lock-order-unsorted',
    what: 'acquireAll counts in the order in which the caller names the locks',
    edits: [
      {
        file: `${recipes}/lock-order.ts`,
        find: 'orders.asking(canonicalOrder(names), ',
        replaceBy: 'orders.asking(names, ',
      },
    ],
    foundBy: { units: { file: suite('lock-order'), name: 'acquireAll' } },
  },
  {
    id: 'G4-lock-order-released',
    what: 'a lease that is over still counts as held',
    edits: [
      {
        file: `${recipes}/lock-order.ts`,
        find: "if (state === 'held' || state === 'jeopardy') yield",
        replaceBy: 'if (name !== state) yield',
      },
    ],
    foundBy: { units: { file: suite('lock-order'), name: 'released or lost' } },
  },
  {
    id: 'G1-lock-order-repeated',
    what: 'the same orders are told again and again',
    edits: [
      {
        file: `${recipes}/lock-order.ts`,
        find: '    if (this.#graph.has(held, asked)) return\n',
        replaceBy: '',
      },
      {
        file: `${recipes}/lock-order.ts`,
        find: '    if (this.#reported.has(key)) return\n',
        replaceBy: '',
      },
    ],
    foundBy: { units: { file: suite('lock-order'), name: 'told once' } },
  },
  {
    id: 'G1-deadlock-of-a-process',
    what: 'claims without an owner count as one task of their process',
    edits: [
      {
        file: `${recipes}/lock-order/deadlocks.ts`,
        find: '(owner === undefined ? undefined : byOwner.get(key))',
        replaceBy: 'byOwner.get(key)',
      },
      {
        file: `${recipes}/lock-order/deadlocks.ts`,
        find: '    if (owner !== undefined) byOwner.set(key, task)\n',
        replaceBy: '    byOwner.set(key, task)\n',
      },
      {
        file: `${recipes}/lock-order/deadlocks.ts`,
        find: 'const key = JSON.stringify([holder, owner])',
        replaceBy: 'const key = JSON.stringify([holder])',
      },
    ],
    foundBy: { units: { file: suite('lock-order'), name: 'without owners' } },
  },
  {
    id: 'G1-deadlock-of-permits',
    what: 'every cycle is called a deadlock, also where another holder can give back enough',
    edits: [
      {
        file: `${recipes}/lock-order/deadlocks.ts`,
        find: '  while (names.map(proceed).includes(true));\n',
        replaceBy: '',
      },
    ],
    foundBy: { units: { file: suite('lock-order'), name: 'permits' } },
  },
  {
    id: 'G1-single-flight-blind',
    what: 'a waiter does not look at the store again when it has the lease',
    edits: [
      {
        file: `${recipes}/single-flight.ts`,
        find: '(await this.#look()) ?? this.#produce(lease, abandoned)',
        replaceBy: 'this.#produce(lease, abandoned)',
      },
    ],
    foundBy: { units: { file: suite('single-flight'), name: 'one process computes' } },
  },
  {
    id: 'G5-single-flight-stores-late',
    what: 'a result is stored although the lease was lost while it was computed',
    edits: [
      {
        file: `${recipes}/single-flight.ts`,
        find: "    if (lease.state === 'lost') throw lease.signal.reason\n",
        replaceBy: '',
      },
    ],
    foundBy: { units: { file: suite('single-flight'), name: 'lost lease' } },
  },
  {
    id: 'G5-single-flight-own-result',
    what: 'a process that was overtaken fails, although the store has the newer result',
    edits: [
      {
        file: `${recipes}/single-flight.ts`,
        find: '      if (newer === null) throw error\n',
        replaceBy: '      if (newer !== undefined) throw error\n',
      },
    ],
    foundBy: { units: { file: suite('single-flight'), name: 'G5' } },
  },
  {
    id: 'G9-single-flight-stampede',
    what: 'callers of one process compute side by side',
    edits: [
      {
        file: `${recipes}/single-flight.ts`,
        find: '    byKey.set(this.#key, started)\n',
        replaceBy: '',
      },
    ],
    foundBy: { units: { file: suite('single-flight'), name: 'share one flight' } },
  },
  {
    id: 'G11-web-locks-raw-loss',
    what: 'a lock that was lost rejects with an error that the standard does not know',
    edits: [
      {
        file: `${library}/web-locks.ts`,
        find: 'lost.reject(brokenLock(lease.name, lease.signal.reason))',
        replaceBy: 'lost.reject(lease.signal.reason)',
      },
    ],
    foundBy: { units: { file: suite('web-locks'), name: 'stolen lock' } },
  },
  {
    id: 'G6-web-locks-late-abort',
    what: 'a request that was aborted between its grant and its callback runs the callback',
    edits: [
      {
        file: `${library}/web-locks.ts`,
        find: '    signal?.throwIfAborted()\n    isHeld = true\n',
        replaceBy: '    isHeld = true\n',
      },
    ],
    foundBy: { units: { file: suite('web-locks'), name: 'G6' } },
  },
  {
    id: 'T56-web-locks-null',
    what: 'an engine that cannot be reached looks like a lock that is taken',
    edits: [
      {
        file: `${library}/web-locks.ts`,
        find: "ifAvailable && isHoldfastError(error, 'ACQUIRE_TIMEOUT')",
        replaceBy: 'ifAvailable && isHoldfastError(error)',
      },
    ],
    foundBy: { units: { file: suite('web-locks'), name: 'T56' } },
  },
]
