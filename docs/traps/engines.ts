import { engineDecides, type TrapSection } from '../../scripts/docs/trap-types.ts'

export const engines: TrapSection = {
  title: 'Found by testing on real engines',
  traps: [
    {
      id: 'T61',
      title: 'A lease id used as a fence: it is not ordered',
      core: engineDecides,
      backends: { test: 'C44 G2 T61 a token is a positive number of at most 63 bits' },
      redlock: { reason: 'it issues no tokens, by type' },
      later: { reason: 'only etcd has lease ids' },
    },
    {
      id: 'T62',
      title:
        'ZooKeeper: a follower cut off from the leader went on answering pings and `exists(own node)` until 3.9 s although the leader had expired the session (time-out 1 s) at 1.06 s. A committed write did not renew the session either: it expired 0.5–0.7 s after such a write, 6 of 6',
      core: { reason: 'only ZooKeeper has followers that answer pings' },
      backends: 'as core',
      zookeeper: {
        test: 'belief never outlives the node (T62, T91) when the leader is not heard, and then not told: a re-attachment and a write',
      },
    },
    {
      id: 'T63',
      title:
        'etcd: a stopped and resumed old leader confirmed a keep-alive that the new leader never saw, 7 of 10; belief outlived the key by 1.9–2.6 s at TTL 6 s',
      core: { reason: 'core is told by the backend what was confirmed' },
      backends: 'as core',
      etcd: {
        test: 'T63 T88 a leader that was stopped and has been replaced confirms a keep-alive, and it does not count',
      },
      zookeeper: {
        test: 'T63 T88 a leader that was stopped and has been replaced confirms a keep-alive, and it does not count',
      },
      consul: {
        test: 'T63 T88 a leader that was stopped and has been replaced confirms a keep-alive, and it does not count',
      },
      later: { reason: 'the server promises what its backend confirms' },
    },
    {
      id: 'T64',
      title:
        'A new lease on an old session believed for a full TTL from its own acquire: it ends when the session does',
      core: {
        test: 'T64 a lease on an old session ends when the session does, not a TTL after its own acquire',
      },
      backends: {
        test: 'C21 T64 G3 attaching prolongs nothing, and an attached client does not believe that it does',
      },
      'postgres-advisory': {
        test: 'C59 T64 G3 a grant on an old session is believed no longer than the engine keeps it',
      },
    },
    {
      id: 'T65',
      title: 'A handed-over lease counted from the receipt of the push',
      core: { test: 'T7 T65 a handed-over lease counts from the waiter’s last heartbeat, not from the push' },
      backends: {
        test: 'C85 T65 G3 a grant that was handed over is believed no longer than the engine keeps it',
      },
      redlock: { reason: 'nothing is handed over: waiters poll' },
      'postgres-advisory': { reason: 'nothing is handed over: waiters poll' },
    },
    {
      id: 'T66',
      title:
        "PostgreSQL: a take-over that locks only the name's row reads the session's old expiry while the keep-alive's commit is in flight: two holders without any clock fault. Judge expiry while holding the session's row",
      core: { reason: 'only PostgreSQL reads a row while another commit is in flight' },
      backends: 'as core',
      postgres: {
        test: 'T66 expiry is judged while holding the row of the session: a slow keep-alive keeps its lease',
      },
      'postgres-advisory': { reason: 'a lock ends with its connection, and no row holds an expiry' },
      later: { reason: 'only PostgreSQL reads a row while another commit is in flight' },
    },
    {
      id: 'T67',
      title:
        "PostgreSQL: `nextval` inside the upsert's VALUES, or a sequence with CACHE 32: 2,197 and 2,390 of 4,800 tokens out of grant order; row lock first, then `nextval`: 0",
      core: { reason: 'only PostgreSQL draws tokens from a sequence' },
      backends: 'as core',
      postgres: {
        test: 'T67 tokens are drawn after the lock, one at a time: under contention none is out of order',
      },
      'postgres-advisory': {
        test: 'T67 T37 a token is drawn after the lock: under contention they rise in the order of the grants',
      },
      later: { reason: 'only PostgreSQL draws tokens from a sequence' },
    },
    {
      id: 'T68',
      title:
        'PostgreSQL `synchronous_commit = off` and a crash: one token issued twice. Two holders with an equal token must not both pass a guard: the grant id decides',
      core: engineDecides,
      backends: { test: 'D8 T68 of two holders with the same token only the first to come passes' },
      redlock: { reason: 'it issues no tokens, by type' },
      postgres: {
        test: 'T68 a token is on the disk before it is told, whatever the client has set: none is issued twice',
      },
      'postgres-advisory': {
        test: 'T68 G2 tokens rise over a crash, also when another had logged them and not yet waited for the disk',
      },
      etcd: { reason: 'a token is a revision that a majority has stored; none is issued before' },
      zookeeper: { reason: 'a token is a transaction that a majority has stored; none is issued before' },
      consul: { reason: 'a token is an index that a majority has stored; none is issued before' },
      later: { reason: 'only PostgreSQL can be told not to wait for the disk' },
    },
    {
      id: 'T69',
      title: 'Redis Lua prints large numbers as `1.79e+15`: duplicates within 100 µs',
      core: { reason: 'only Redis runs Lua' },
      backends: 'as core',
      redis: { test: 'T69 T42 tokens of the same microsecond are whole numbers, all different' },
      redlock: { reason: 'it issues no tokens, by type' },
      later: { reason: 'only Redis can have it' },
    },
    {
      id: 'T70',
      title:
        'Re-entrant by session or connection (Consul acquire, `pg_try_advisory_lock`): two tasks of one process both hold',
      core: engineDecides,
      backends: { test: 'C28 G1 T70 two attempts of one session exclude each other like strangers' },
      consul: { test: 'T70 is locked again by its session, whoever asks; not by another session' },
    },
    {
      id: 'T71',
      title:
        'SQLite on the monotonic clock: after a reboot old expiries lie days ahead; in another time namespace they are shifted',
      core: { reason: 'core stores no times' },
      backends: 'each its own',
      memory: { reason: 'nothing outlives the process' },
      sqlite: { test: 'the monotonic clock belongs to one boot' },
      redis: { reason: 'expiry is judged by the server, which keeps its own time' },
      redlock: { reason: 'expiry is judged by the servers, which keep their own time' },
      postgres: { reason: 'expiry is judged by the server, which keeps its own time' },
      'postgres-advisory': { reason: 'expiry is judged by the server, which keeps its own time' },
      etcd: { reason: 'expiry is judged by the server, which keeps its own time' },
      zookeeper: { reason: 'expiry is judged by the leader, which keeps its own time' },
      consul: { reason: 'expiry is judged by the server, which keeps its own time' },
      later: { reason: 'servers keep their own time' },
    },
    {
      id: 'T72',
      title: "A semaphore's waiter that watches only its predecessor sleeps while another holder releases",
      core: engineDecides,
      backends: { test: 'C116 T72 the release of any holder lets the first waiter through' },
      redlock: { reason: 'it has no semaphores, and refuses them' },
      'postgres-advisory': { reason: 'it has no semaphores, and refuses them' },
    },
    {
      id: 'T73',
      title:
        'The undo says "not held", then the delayed original lands on a session that is still alive (clients re-send by default)',
      core: {
        test: 'G6 T73 the undo was answered, then the delayed original lands on a session that is still alive',
      },
      backends: { test: 'C93 T73 T15 a try that arrives after its abandon never lands' },
      redis: { test: 'T15 T73 G6 an acquire that lands after it was given up comes to nothing (ioredis 6)' },
      redlock: {
        test: 'T15 T73 a request that arrives long after it was given up meets the mark, also when it arrives twice',
      },
      zookeeper: {
        test: 'T73 a join that the member that it has left gets late comes to nothing, after a mark and after the mark has gone',
      },
    },
    {
      id: 'T74',
      title: 'Force release aimed at A hits B, who got the lock in between',
      core: { test: 'T34 T74 a forced release is noticed at the next keep-alive, with its reason' },
      backends: { test: 'C141 T74 a holder is released by its token, and only that one' },
      redlock: { test: 'T74 G7 a force release ends exactly whom it means, also a stranger' },
    },
    {
      id: 'T75',
      title:
        'An etcd snapshot restore kept the cluster id while the revision went from 8 back to 3: only a raised epoch makes tokens safe',
      core: {
        test: 'T75 decide first: every token of a higher epoch is greater, and within one the order is the engine’s',
      },
      backends: {
        reason: 'a backup that is restored is not an engine of its own: its operator raises the epoch',
      },
      postgres: {
        test: 'G2 T75 a database that was restored issues tokens again, under the same issuer: a raised epoch makes them safe',
      },
      'postgres-advisory': {
        test: 'G2 T75 a database that was restored issues tokens again, under the same issuer: a raised epoch makes them safe',
      },
      etcd: { test: 'G2 T75 a restored snapshot issues tokens again: a raised epoch makes them safe' },
      zookeeper: { test: 'G2 T75 restored data issues tokens again: a raised epoch makes them safe' },
      consul: { test: 'G2 T75 in another cluster it issues tokens again: a raised epoch makes them safe' },
      later: { reason: 'how tokens of two epochs compare is core’s; each page says when to raise it' },
    },
  ],
}
