import type { TrapSection } from '../../scripts/docs/trap-types.ts'

export const attacks: TrapSection = {
  title: 'Found by attacking the public API',
  traps: [
    {
      id: 'T76',
      title:
        'A command that never settles counts as in flight for ever: after one reset a client answers PING, and the locker sends nothing',
      seenIn: 'ioredis with autoResendUnfulfilledCommands: false',
      core: { reason: 'core limits every call in time; which calls are in flight is counted by the backend' },
      backends: { test: 'calls in flight when their connection is reset are settled' },
      memory: { reason: 'every call is answered within the process' },
      sqlite: { reason: 'every call is answered by the file, in the same turn' },
      redis: { test: 'T76 calls in flight at a reset do not stop the calls after it' },
      redlock: { test: 'T76 nodes whose client forgets calls at a reset do not owe an answer for ever' },
      etcd: { test: 'T76 a request that is given up does not count as in flight for ever' },
      zookeeper: { test: 'T76 a request that is given up does not count as in flight for ever' },
      consul: { test: 'T76 a request that is given up does not count as in flight for ever' },
    },
    {
      id: 'T77',
      title:
        'One stepped clock, of a server in the intersection of two majorities, is enough for two believers; not a majority of clocks',
      seenIn: 'Redlock',
      core: { reason: 'only Redlock counts votes of servers' },
      backends: 'as core',
      redlock: { test: 'T77 clock-jump-one: with the clock of 1 of 5 nodes set ahead, two believe at once' },
      later: { reason: 'only Redlock counts votes of servers' },
    },
    {
      id: 'T78',
      title:
        'An operator’s call that is resent, or lands after it was cancelled, ends a successor (force release, resize, forget)',
      core: {
        test: 'T78 G7 a force release that was cancelled and lands later does not end the next holder',
      },
      backends: {
        test: 'T78 G7 a force release that arrives twice, or late, ends the holders that were seen and no successor',
      },
    },
    {
      id: 'T79',
      title:
        'An outcome that was stored in a transaction is reported although the transaction was rolled back',
      core: { reason: 'outcomes are stored by `idempotent` alone, on SQLite and PostgreSQL' },
      backends: 'as core',
      sqlite: {
        test: 'T79 a result whose COMMIT failed is reported to no caller, also if the work catches the failure',
      },
      postgres: {
        test: 'T79 a result whose COMMIT failed is reported to no caller, also if the work catches the failure',
      },
      later: { reason: 'outcomes are stored by `idempotent` alone, on SQLite and PostgreSQL' },
    },
    {
      id: 'T80',
      title:
        'A SECURITY DEFINER function that PUBLIC may execute: a stranger raises the mark of a guard and locks all holders out',
      core: { reason: 'only PostgreSQL has functions with the rights of their owner' },
      backends: 'as core',
      postgres: {
        test: 'T80 a role with USAGE alone cannot raise a mark of the guard through a table of its own',
      },
      'postgres-advisory': {
        reason: 'its functions have the rights of the caller; the test for postgres looks at those as well',
      },
      later: { reason: 'only PostgreSQL has functions with the rights of their owner' },
    },
    {
      id: 'T81',
      title:
        'Waiters that gave up leave positions behind a living head: later operations walk over all of them',
      core: { reason: 'the queue is the engine’s; core gives every position back' },
      backends: 'each its own',
      memory: { reason: 'a linked list: a waiter that leaves is taken out of it' },
      sqlite: { reason: 'a position is a row, which is deleted when its waiter leaves' },
      redis: {
        test: 'T81 G9 what is stored, and what inspect and release cost, does not depend on how many waiters gave up',
      },
      redlock: { reason: 'no queue' },
      postgres: { reason: 'a position is a row, which is deleted when its waiter leaves' },
      etcd: { reason: 'a position is a key, which is deleted when its waiter leaves' },
      'postgres-advisory': { reason: 'no queue' },
      zookeeper: {
        test: 'T81 attempts that were given up leave nothing that grows',
      },
      consul: { reason: 'a position is a key, which is deleted when its waiter leaves' },
    },
    {
      id: 'T82',
      title: 'Watching by comparing lists: cost grows with the names in use',
      seenIn: 'Holdfast on Redis: a third of a thread at 10,000 names',
      core: { test: 'T82 list collects all pages, in byte order and each name once' },
      backends: {
        test: 'C227 T82 a list comes in pages, each in byte order, and together they have every name',
      },
      memory: {
        test: 'C234 T82 under load a watch misses nothing, also one that goes on from a cursor, or it says that it did',
      },
      sqlite: { test: 'T82 the cost of a watch follows the changes, not the names in use' },
      redis: { test: 'T82 the cost of a watch follows the changes, not the names in use' },
      postgres: {
        test: 'T82 without a watcher nothing is logged, and a watcher that leaves takes its registration back',
      },
    },
    {
      id: 'T83',
      title:
        'A cached generic plan that was made while the table was small: every item of a batch scans all holders',
      seenIn: 'PostgreSQL',
      core: { reason: 'only SQL has plans' },
      backends: 'as core',
      sqlite: { reason: 'no statistics are made, so plans do not change; statements look up by whole keys' },
      postgres: {
        test: 'T83 with plans made while the tables were known to be small, calls read as little with 11,000 others held',
      },
      'postgres-advisory': {
        test: 'T83 with plans made while the table was small, a call reads its own record only',
      },
      later: { reason: 'only SQL has plans' },
    },
    {
      id: 'T84',
      title:
        'One attempt granted twice under two tokens (a late copy of the request after a deletion): the keep-alive confirms the attempt instead of the grant',
      core: { test: 'T84 G3 the keep-alive says that the first grant is lost, and the second is given back' },
      backends: { test: 'T84 a late copy of an acquire after a deletion does not bring the old lease back' },
      'postgres-advisory': {
        test: 'T84 T73 a late copy of an acquire after the release is another grant, and core is told of it',
      },
    },
    {
      id: 'T85',
      title:
        'Locker and guard share a pool or a client: user transactions or a blocking command starve the renewals, and the error blames the engine',
      core: { reason: 'core has no connections; its errors pass on what the backend knows of the client' },
      backends: 'each its own',
      memory: { reason: 'no connections' },
      sqlite: { reason: 'no pool: the backend has a connection to the file of its own' },
      redis: { test: 'T85 with ioredis 6, renewals go on while the client is blocked' },
      redlock: {
        reason:
          'a node whose client is blocked counts as silent, and the others decide; stated in docs/backends/redlock.md',
      },
      postgres: {
        test: 'T85 with pg, renewals and other calls go on while guarded transactions have the whole pool',
      },
      'postgres-advisory': {
        reason: 'each session has a connection beside the pool, and its statements go over that',
      },
      etcd: { reason: 'the backend has a connection of its own, which no caller can block' },
      zookeeper: { reason: 'the backend has connections of its own, which no caller can block' },
      consul: { reason: 'the backend has connections of its own, which no caller can block' },
    },
    {
      id: 'T86',
      title:
        'A holder frozen inside a guarded transaction blocks its successor at the resource without limit',
      core: { reason: 'no transactions: they are the guards’' },
      backends: 'each its own',
      memory: { reason: 'holder and successor are one process' },
      sqlite: { reason: 'nothing can end the lock of a frozen process on a file; stated in docs/guards.md' },
      redis: {
        reason: 'the guard’s check and effect are one script; nothing stays locked between two calls',
      },
      redlock: { reason: 'Redlock issues no fences, so nothing of it is guarded' },
      postgres: { test: 'T86 with pg, a holder that is frozen in a run does not block its successor' },
      'postgres-advisory': { reason: 'a matter of the guard, not of the engine' },
      etcd: { reason: 'a matter of the guard, not of the engine' },
      zookeeper: { reason: 'a matter of the guard, not of the engine' },
      consul: { reason: 'a matter of the guard, not of the engine' },
      later: { reason: 'a matter of the guard, not of the engine' },
    },
    {
      id: 'T87',
      title: 'After an outage longer than the TTL a waiting call fails at once, retryable: a hot loop',
      core: {
        test: 'T87 after an outage longer than the TTL a waiting call retries with backoff, and is served when the engine is back',
      },
      backends: 'as core',
      later: { reason: 'core decides when a call is made again' },
    },
    {
      id: 'T88',
      title: 'A resumed old leader confirms a renewal after the key was seen gone elsewhere',
      seenIn: 'Consul',
      core: { reason: 'info.prolongation says which engines can do that; guards check the token' },
      backends: 'each its own',
      memory: { reason: 'it has no replicas' },
      sqlite: { reason: 'it has no replicas' },
      redis: { reason: 'declared: prolongation is leader-local, and an old primary can do that (T63)' },
      redlock: { reason: 'a majority of independent nodes confirms, and none of them follows another' },
      postgres: {
        reason: 'declared: prolongation is committed, as far as the assumptions about standbys hold',
      },
      'postgres-advisory': { reason: 'there is no renewal: the connection is the lease' },
      etcd: {
        test: 'T63 T88 a leader that was stopped and has been replaced confirms a keep-alive, and it does not count',
      },
      zookeeper: {
        test: 'T63 T88 a leader that was stopped and has been replaced confirms a keep-alive, and it does not count',
      },
      consul: {
        test: 'T88 a leader that was replaced is resumed while renewals are in its socket: they do not count',
      },
      later: { reason: 'info.prolongation says which engines can do that; guards check the token' },
    },
    {
      id: 'T89',
      title: "A long poll for each waiter runs into the server's limit of connections",
      seenIn: 'Consul',
      core: { reason: 'the engine decides this; core opens no connections' },
      backends: 'each its own',
      memory: { reason: 'it has no connections' },
      sqlite: { reason: 'it has no connections' },
      redis: { test: 'T89 many waiters of one client need few connections' },
      redlock: { reason: 'it has no queue: waiters poll, over one connection to each node' },
      postgres: { test: 'T89 many waiters of one client need few connections' },
      'postgres-advisory': {
        test: 'T21 T89 pg: many waiters of one locker need one connection, and hold up no other name',
      },
      etcd: { test: 'T89 many waiters of one client need few connections' },
      zookeeper: { test: 'T89 many waiters of one client need few connections' },
      consul: { test: 'T89 500 wait on one name and 300 names are waited for: few connections' },
      later: { reason: 'C239 counts the connections of every backend that waits in a queue' },
    },
    {
      id: 'T90',
      title:
        'While a slot is being moved, commands about several keys fail, and keys on the other side look deleted',
      seenIn: 'Redis Cluster',
      core: { reason: 'only a Redis Cluster has slots' },
      backends: 'as core',
      redis: {
        test: 'T90 shared leases are never told that they were deleted while their keys are on two sides',
      },
      redlock: { reason: 'a Cluster is refused: every node is one server of its own' },
      later: { reason: 'only a Redis Cluster has slots' },
    },
    {
      id: 'T91',
      title:
        'A ping, one tick and a committed write do not prove a prolongation; a deposed leader answers pings, reads and syncs',
      seenIn: 'ZooKeeper',
      core: { reason: 'only ZooKeeper prolongs a session by pings' },
      backends: 'as core',
      zookeeper: {
        test: 'belief never outlives the node (T62, T91) when the leader is not heard, and then not told: a re-attachment and a write',
      },
    },
    {
      id: 'T92',
      title: 'Predecessor gone does not mean first: a waiter in the middle may have cancelled',
      core: { reason: 'the queue is the engine’s' },
      backends: 'each its own',
      memory: { reason: 'the engine grants the name itself, to the first waiter' },
      sqlite: { reason: 'the release grants the name, to the first waiter' },
      redis: { reason: 'the release grants the name, to the first waiter' },
      redlock: { reason: 'no queue: waiters poll, with pauses of random length' },
      postgres: { reason: 'the release grants the name, to the first waiter' },
      'postgres-advisory': { reason: 'the server’s own queue grants the lock' },
      etcd: {
        test: 'T92 a waiter in the middle cancels: the one behind it is not granted before the holder leaves',
      },
      zookeeper: {
        test: 'G8 T92 a waiter in the middle leaves, and the one behind it is not granted before the holder goes',
      },
      consul: {
        test: 'T92 a waiter in the middle cancels: the one behind it is not granted before the holder leaves',
      },
    },
    {
      id: 'T93',
      title:
        'ETags that are a hash of the content repeat when the content repeats: a conditional write on them lets an older holder through',
      seenIn: 'S3-like stores',
      core: {
        test: 'T93 T40 no write is lost, refused and applied, applied twice, or after a newer holder',
      },
      backends: { reason: 'it is about guards of object stores' },
    },
    {
      id: 'T94',
      title:
        'A file and its mark in one transaction of SQLite: a kill between rename and COMMIT leaves new content with the old mark',
      core: {
        test: 'at every step leaves the old content with the old mark, or the new with the new',
      },
      backends: { reason: 'it is about guards for files' },
    },
    {
      id: 'T95',
      title:
        'A fencing proxy that only records the token before it forwards: a slow older request takes effect after a newer one',
      core: {
        test: 'T95 with drain and quarantine no effect comes after that of a newer token',
      },
      backends: { reason: 'it is about proxies that fence' },
    },
  ],
}
