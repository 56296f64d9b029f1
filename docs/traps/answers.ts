import type { TrapSection } from '../../scripts/docs/trap-types.ts'

export const answers: TrapSection = {
  title: 'Ambiguous answers',
  traps: [
    {
      id: 'T10',
      title:
        'ZooKeeper create succeeded, reply lost → ghost node that blocks everyone; or the node found belongs to the expired session',
      seenIn: 'Curator #600, #855, #1018, #1121',
      core: { reason: 'only ZooKeeper has ephemeral nodes' },
      backends: 'as core',
      zookeeper: {
        test: 'T10 a create whose reply is lost leaves no ghost: the name is free when the attempt was abandoned',
      },
    },
    {
      id: 'T11',
      title: 'Postgres cancel or lock_timeout while the lock was taken',
      seenIn: 'madelson #147',
      core: { reason: 'only PostgreSQL cancels a statement that has taken its lock' },
      backends: 'as core',
      postgres: {
        test: 'T11 a wait for the standby that was cancelled after the commit is an unknown outcome, with both clients',
      },
      'postgres-advisory': {
        test: 'T11 T14 pg: an acquire that is cancelled around the moment of its grant leaves nothing held',
      },
      later: { reason: 'only PostgreSQL cancels a statement that has taken its lock' },
    },
    {
      id: 'T12',
      title: 'Renewal applied, reply lost, then compare-and-set on the old version = false loss',
      seenIn: 'dynamolock #280',
      core: { test: 'T12 a renewal that was applied although its reply was lost is not a loss' },
      backends: {
        test: 'C31 T12 T39 a try is idempotent in its attempt: asked again, it answers with the same grant',
      },
    },
    {
      id: 'T13',
      title:
        'A release repeated after a lost reply must say so truthfully; a release that failed must stay repeatable',
      seenIn: 'etcd #22123, Consul, Curator #1193',
      core: {
        test: 'G11 T13 a release whose reply is lost says unknown, can be repeated, and is finished in the background',
      },
      backends: { test: 'C39 T13 the second of two releases says that it released nothing' },
      redis: { test: 'T13 a release whose reply is lost is made certain in the background' },
      etcd: { test: 'T13 a release whose reply is lost says unknown, and asked again says the truth' },
      zookeeper: {
        test: 'T13 a release whose reply is lost is unknown, and its copy finds nothing to release',
      },
      consul: { test: 'T13 a release whose reply is lost says unknown, and asked again says the truth' },
    },
    {
      id: 'T14',
      title: "Cleanup that uses the caller's cancelled signal, and so never runs",
      seenIn: 'redsync, syncguard: lock held 30 s',
      core: { test: 'T14 T30 what fails stops neither the rest nor the process' },
      backends: {
        test: 'C173 T14 G6 an acquire whose caller has already gone is not made, says so, and leaves nothing',
      },
      redlock: {
        test: 'T14 T15 a cancelled call is answered at once, and what it won afterwards is given back',
      },
    },
    {
      id: 'T15',
      title: 'An acquire that timed out at the client lands later at the server and is never released',
      seenIn: 'redlock-universal: orphan with 29.8 s left; simple-redis-mutex',
      core: { test: 'G6 T15 an acquire that timed out at the client and lands later is never held' },
      backends: { test: 'C91 T15 G6 abandoning a holder frees its name' },
      redis: { test: 'T15 T73 G6 an acquire that lands after it was given up comes to nothing (ioredis 6)' },
      redlock: {
        test: 'T15 T73 a request that arrives long after it was given up meets the mark, also when it arrives twice',
      },
      etcd: {
        test: 'T15 T73 G6 an acquire whose reply is lost is unknown, and leaves nothing once abandoned',
      },
      zookeeper: {
        test: 'T15 T73 G6 an acquire whose reply is lost is unknown, and leaves nothing once abandoned',
      },
      consul: {
        test: 'T15 T73 G6 an acquire whose reply is lost is unknown, and leaves nothing once abandoned',
      },
    },
    {
      id: 'T16',
      title:
        'A command that never returns (frozen server): the lease must be declared lost at its deadline all the same',
      seenIn: 'redlock 5: TTL 2 s, not aborted at 8 s; redlock-universal: 7.4 s at TTL 3 s',
      core: { test: 'is answered at its limit, as unknown' },
      backends: {
        test: 'C66 T16 an expired session can still be spoken to, and is told that it has nothing',
      },
      redis: { test: 'T16 G3 a frozen server: the lease is lost at its deadline all the same (ioredis 6)' },
      redlock: { test: 'T16 G3 when all nodes freeze, a lease is lost at its deadline, not later' },
      postgres: { test: 'T16 G3 a frozen server: the lease is lost at its deadline all the same (pg)' },
      'postgres-advisory': {
        test: 'G3 T16 T33 a black hole: the holder stops believing, then the server ends its connection, then the next one gets it',
      },
      etcd: { test: 'T16 T33 G3 cut off from all members, a lease is lost at its deadline' },
      zookeeper: { test: 'T16 T33 G3 cut off from all members, a lease is lost at its deadline' },
      consul: { test: 'T16 T33 G3 cut off from all members, a lease is lost at its deadline' },
    },
  ],
}
