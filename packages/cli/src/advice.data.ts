/** The decision table of `holdfast advise`. `docs/advise.md` is generated from it. */

export interface Fit {
  /** The value of `--for`. */
  readonly key: string
  readonly question: string
  /** `no`: something else is better, whatever the engine. `yes`: a lock, and with correctness a guard. */
  readonly lock: 'no' | 'yes'
  readonly answer: string
  readonly why: string
  readonly code: string
  readonly page: string
}

export const fits: readonly Fit[] = [
  {
    key: 'row',
    question: 'one row is changed, such as the units of an article',
    lock: 'no',
    answer: 'one conditional UPDATE',
    why: 'The database changes a row in one step, and the condition refuses what must not happen.',
    code: 'UPDATE stock SET units = units - 1 WHERE sku = 42 AND units > 0',
    page: 'lockfree.md',
  },
  {
    key: 'read-write',
    question: 'something is read, computed and written back',
    lock: 'no',
    answer: 'a version column and a retry (optimisticUpdate), or SELECT … FOR UPDATE in a short transaction',
    why: 'Who comes second notices it by the version, without having waited for anybody.',
    code: 'await optimisticUpdate(read, writeIfTheVersionIsTheSame)',
    page: 'lockfree.md#optimisticupdate',
  },
  {
    key: 'unique',
    question: 'a value may exist once, such as a user name or a seat',
    lock: 'no',
    answer: 'a unique constraint',
    why: 'The database refuses the second one, also from a program that knows nothing of your lock.',
    code: 'ALTER TABLE seats ADD UNIQUE (flight, seat)',
    page: 'lockfree.md',
  },
  {
    key: 'payment',
    question: 'a request may come twice and must take effect once, such as a payment',
    lock: 'no',
    answer: 'a unique key for each request (idempotent), which the payment provider gets as well',
    why: 'The second request comes after the lock was released, or after it was lost. Only a key that stays recognises it.',
    code: "await idempotent({ scope: 'payments', key, payload: order }, charge)",
    page: 'lockfree.md#idempotent',
  },
  {
    key: 'queue',
    question: 'many workers share a list of jobs',
    lock: 'no',
    answer: 'a queue, or rows that are claimed with SKIP LOCKED (claimJobs)',
    why: 'Workers that take different jobs need not wait for each other.',
    code: 'for (const job of await jobs.claimJobs()) { await send(job.payload); await job.complete() }',
    page: 'lockfree.md#claimjobs',
  },
  {
    key: 'rate-limit',
    question: 'a rate is limited, or something is counted',
    lock: 'no',
    answer: 'a counter with an expiry, such as INCR of Redis',
    why: 'Counting is one step of the engine. A lock would make every request wait for every other.',
    code: 'const n = await redis.incr(key); if (n === 1) await redis.expire(key, 60)',
    page: 'lockfree.md',
  },
  {
    key: 'merge',
    question: 'several copies are changed apart and come together later',
    lock: 'no',
    answer: 'state that merges (a CRDT, an event log)',
    why: 'A lock excludes those who cannot reach it. State that merges needs nobody’s permission.',
    code: '// each copy keeps its own changes; merging them in any order gives the same state',
    page: 'lockfree.md',
  },
  {
    key: 'partition',
    question: 'work is split by key, and each part belongs to one of several workers',
    lock: 'yes',
    answer: 'partitions: each is a lease, shared evenly among the living',
    why: 'A worker that owns a part needs no lock for each item in it.',
    code: "await partitions(locker, { name: 'orders', count: 64, onAssigned: start, onRevoked: stop })",
    page: 'recipes/partitions.md',
  },
  {
    key: 'job',
    question: 'a job runs at certain times, on one of several machines',
    lock: 'yes',
    answer: 'a schedule over a lease row',
    why: 'The record of the last run stays, so a late clock or a restart does not run the job twice.',
    code: "holdfast schedule report --cron '0 3 * * *' -- ./report.sh",
    page: 'recipes/schedule.md',
  },
  {
    key: 'leader',
    question: 'one process leads, for as long as it lives',
    lock: 'yes',
    answer: 'an election',
    why: 'A lease that renews itself is a leader. The next one takes over when it ends.',
    code: 'holdfast elect planner -- ./planner',
    page: 'recipes/election.md',
  },
  {
    key: 'external',
    question: 'a thing that cannot defend itself: a device, a file, somebody’s service',
    lock: 'yes',
    answer: 'a lease around the work, and a guard in front of the thing',
    why: 'Nothing in the thing itself refuses the second one.',
    code: 'holdfast run device-7 --wait 1m -- ./configure.sh',
    page: 'guards.md',
  },
]

export interface EngineFit {
  /** The value of `--engine`. */
  readonly key: string
  readonly url: string
  readonly isFenced: boolean
  /** From a release to the next holder: about what `npm run bench -- <key>` measures (p50), and 1 to 10 ms for a network. */
  readonly handOverMs: number
  /** How far it reaches. */
  readonly reach: 'machine' | 'region'
  readonly note: string
  /** It is advised against; another engine takes its place. */
  readonly not?: string
}

const usual = { isFenced: true, reach: 'region' } as const

export const engines: readonly EngineFit[] = [
  {
    ...{ ...usual, key: 'postgres', url: 'postgres://host/database', handOverMs: 6 },
    note: 'Lease rows: no server to add, guards in the same transaction as the data.',
  },
  {
    ...{ ...usual, key: 'redis', url: 'redis://host?fencing=clock-backed', handOverMs: 2 },
    note: 'Fast. Its replicas are asynchronous, so a fail-over may lose grants.',
  },
  {
    ...{ ...usual, key: 'etcd', url: 'etcd://a,b,c', handOverMs: 10 },
    note: 'A grant survives the loss of members. Use three or five, and an etcd of your own.',
  },
  {
    ...{ ...usual, key: 'zookeeper', url: 'zookeeper://a,b,c', handOverMs: 10 },
    note: 'As etcd, where ZooKeeper runs already.',
  },
  {
    ...{ ...usual, key: 'consul', url: 'consul://host', handOverMs: 15 },
    note: 'As etcd, where Consul runs already. Its shortest TTL is 10 s.',
  },
  {
    ...{ ...usual, key: 'sqlite', url: 'sqlite:/var/lib/app/locks.db', handOverMs: 2, reach: 'machine' },
    note: 'Nothing to run; all processes of one machine, on a local file system.',
  },
  {
    ...{ ...usual, key: 'redlock', url: 'redlock://a,b,c', handOverMs: 300, isFenced: false },
    note: 'A majority of independent servers, without tokens, so no guard can refuse a stale holder.',
    not: 'A new system has no reason for Redlock: one Redis is simpler, and etcd is safe.',
  },
  {
    ...{ ...usual, key: 'kubernetes-etcd', url: '', handOverMs: 10 },
    note: 'Kubernetes keeps its own state there.',
    not: 'Not the etcd of a Kubernetes control plane: locks that fill it or slow it down stop the whole cluster. Use an etcd of your own, or the Lease objects of Kubernetes.',
  },
]

export const guarantees = {
  efficiency: 'Two rarely do the work at once: only when one was paused or cut off for longer than its TTL.',
  correctness:
    'A stale holder cannot change what the guard protects, whatever pauses, partitions and clocks do.',
  noGuard: 'Without a guard, a paused process can still write after its lease has ended.',
  noFence:
    'This engine issues no fencing tokens, so this cannot be made safe: choose another engine for correctness.',
  machine: 'It excludes the processes of one machine only.',
  regions:
    'Over several regions every grant costs the round trip between them, and a cut-off region stops. Give each name a home region.',
} as const

export const ttlAdvice =
  'The TTL follows from the longest pause that a holder should survive, not from the length of the work: renewal is automatic.'

export const noLockReplaces = [
  'Reconciliation after the fact. Layers: a lock against duplicates, idempotency for correctness, reconciliation for the rest.',
  'State that merges (CRDTs), where copies must work while they are cut off.',
] as const
