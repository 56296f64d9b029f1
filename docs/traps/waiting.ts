import { engineDecides, type TrapSection } from '../../scripts/docs/trap-types.ts'

export const waiting: TrapSection = {
  title: 'Acquiring and waiting',
  traps: [
    {
      id: 'T17',
      title: 'After waiting, own key and remaining validity not re-checked',
      seenIn: 'etcd #11456, #9921; `Election.Campaign` still',
      core: { test: 'T17 T18 a waiter whose session died while it was queued starts again in a new one' },
      backends: 'as core',
      redlock: { test: 'T7 T17 after a wait of many TTLs a lease has its whole TTL before it' },
      etcd: { test: 'T17 a waiter whose own key has gone is not granted' },
      consul: { test: 'T17 T34 a waiter whose own key was deleted is not granted' },
    },
    {
      id: 'T18',
      title: 'A waiter does not notice that its own session expired while queued',
      seenIn: 'etcd #19597',
      core: { test: 'T17 T18 a waiter whose session died while it was queued starts again in a new one' },
      backends: {
        test: 'C82 T18 a waiter whose own session expires in the queue is not granted, and learns that it is gone',
      },
      redlock: { reason: 'no queue: waiters poll, with pauses of random length' },
      'postgres-advisory': { reason: 'no queue: waiters poll, with pauses of random length' },
    },
    {
      id: 'T19',
      title: 'Wake-up lost between the failed try and the subscription',
      seenIn: 'Redisson #1763, #3891, Curator #1046, ZOOKEEPER-1416',
      core: {
        reason: 'core subscribes to nothing: it takes a position in the queue of the engine, or polls',
      },
      backends: { test: 'C75 T19 a release between a failed try and the enqueue is not missed' },
      redis: { test: 'T19 pushes that were missed while the subscription was lost are made up for' },
      redlock: { reason: 'no queue: waiters poll, with pauses of random length' },
      'postgres-advisory': { test: 'T19 a hint that comes while the waiter is trying is kept for it' },
      postgres: {
        test: 'T19 LISTEN lost and regained, with pg: it listens again, and what was missed is found',
      },
      etcd: { test: 'T19 a watch that begins after the change tells of it' },
      zookeeper: {
        test: 'S31 T19 a watch tells of a change that came after the read and before the watch',
      },
    },
    {
      id: 'T20',
      title: 'A dead waiter blocks a fair queue; a cancelled waiter leaves its position behind',
      seenIn: 'Redisson #1104, #2278, #2883, #5019',
      core: engineDecides,
      backends: { test: 'C80 T20 G8 a dead waiter at the head does not block the living' },
      redis: {
        test: 'G10 T20 a waiter that dies while it is granted the lock delays the others by at most the TTL',
      },
      redlock: { reason: 'no queue: waiters poll, with pauses of random length' },
      'postgres-advisory': {
        test: 'T20 a killed process leaves neither holder nor waiter, and no TTL has to pass',
      },
    },
    {
      id: 'T21',
      title: "Waiters on one key starve another key's: blocking connections, subscription pools",
      seenIn: 'redis-rwlock: grant 3.5 s after its lease ended; Redisson #4216',
      core: { test: 'T21 many waiters on one name do not keep another name from being granted' },
      backends: { test: 'C78 T21 waiters for one name do not hold up those for another' },
      redlock: { reason: 'no queue: waiters poll, with pauses of random length' },
      'postgres-advisory': {
        test: 'T21 T89 pg: many waiters of one locker need one connection, and hold up no other name',
      },
    },
    {
      id: 'T22',
      title: 'Concurrent first acquires each open a session',
      seenIn: 'hazelcast-nodejs #898',
      core: { test: 'T22 concurrent first acquires share one' },
      backends: 'as core',
    },
    {
      id: 'T23',
      title: 'Consul: acquire false with no holder = lock-delay: a timed wait, not a long poll',
      core: { reason: 'only Consul has a lock-delay that answers like this' },
      backends: 'as core',
      consul: {
        test: 'C126 T23 G10 the first waiter is granted when the lock-delay ends, without a call, and not before',
      },
      later: { reason: 'only Consul has a lock-delay that answers like this' },
    },
    {
      id: 'T24',
      title: 'An even number of Redlock nodes splits 2–2 and the promise never settles',
      seenIn: 'redlock 5, sesamecare',
      core: { reason: 'only Redlock asks several servers' },
      backends: 'as core',
      redlock: {
        test: 'T24 an even split settles: 2 votes of 4 are no majority, both sides give back, and one gets it next',
      },
      later: { reason: 'only Redlock asks several servers' },
    },
    {
      id: 'T25',
      title: "Minority wins not undone between retries, so that one's own key votes against one",
      seenIn: 'redlock 5, sesamecare',
      core: { reason: 'only Redlock asks several servers' },
      backends: 'as core',
      redlock: {
        test: 'T25 a minority win is undone before the answer, so one’s own key never votes against one',
      },
      later: { reason: 'only Redlock asks several servers' },
    },
    {
      id: 'T26',
      title:
        '`retryCount: 0` or "no wait" still retries; a wait budget that ends early when the lock becomes free',
      seenIn: 'redlock 4; node-redisson',
      core: { test: 'T26 waitMs where nothing waits' },
      backends: {
        test: 'C67 T26 a free name is granted to an enqueue at once, and no caller is told to wait',
      },
      redlock: {
        test: 'T26 a try that finds the name taken asks every node once, and so does an acquire that may not wait',
      },
      'postgres-advisory': { reason: 'no queue: core decides how often it tries' },
    },
    {
      id: 'T27',
      title: 'Abort not noticed during a backoff sleep',
      seenIn: 'syncguard: 3 s',
      core: { test: "T27 an abort ends it at once, with the caller's own reason" },
      backends: {
        test: "C195 T14 T27 G11 an acquire that is aborted rejects at once with the caller's own reason, and leaves nothing",
      },
      redlock: { test: 'T27 an abort is noticed in the pause between two tries' },
    },
    {
      id: 'T28',
      title: '1,000 waiters, one release: exactly one wakes (G9); none busy-polls',
      core: { test: 'G9 T28 a thousand waiters, one release: exactly one wakes' },
      backends: { test: 'C70 G9 T28 a release wakes exactly one of many waiters, the first' },
      redis: {
        test: 'G9 T28 a release costs the same commands with 1,000 waiting as with 10, and wakes one',
      },
      redlock: {
        reason: 'no queue and no wake-up: waiters poll every 200 to 400 ms, and `info.waiting` says so',
      },
      etcd: { test: 'G9 T28 with 500 waiting, a release costs as many requests as with 5, and wakes one' },
      'postgres-advisory': { test: 'G9 T28 one waiter is told of each release, the first; and none twice' },
      zookeeper: { test: 'G9 T28 a release costs the same with 20 and with 500 waiters' },
      consul: {
        test: 'G9 T28 with 500 waiting, a release costs about as many requests as with 5, and wakes one',
      },
    },
  ],
}
