import { engineDecides, type TrapSection } from '../../scripts/docs/trap-types.ts'

export const identity: TrapSection = {
  title: 'Identity and release',
  traps: [
    {
      id: 'T44',
      title: 'Owner = hostname or `Math.random()`: an unguessable id per attempt',
      seenIn: 'ShedLock, verrou',
      core: { test: 'T44 an id is 128 bits as 22 characters of base64url' },
      backends: 'as core',
    },
    {
      id: 'T45',
      title: "Owner per object instead of per acquisition: the first `run()` releases the second's lock",
      seenIn: 'verrou',
      core: { test: 'T45 every acquisition is an attempt of its own, also of the same locker and name' },
      backends: { test: 'C109 T45 a reader that releases twice does not take another reader along' },
      redlock: { reason: 'every acquisition is an attempt of its own, and its lock has a value of its own' },
    },
    {
      id: 'T46',
      title: 'Release without an owner check, or check and delete in two steps',
      seenIn: 'redis-lock, redis-leader, node-resque',
      core: engineDecides,
      backends: { test: 'C36 T46 G7 a release with another attempt touches nothing' },
    },
    {
      id: 'T47',
      title: "Release of an expired lock takes seconds, throws, and replaces the body's own result or error",
      seenIn: 'redlock 5, sesamecare',
      core: { test: 'G11 T47 a failed release replaces neither the result nor the error of the body' },
      backends: 'as core',
      redlock: {
        test: 'T47 the release of what has expired answers at once that it is not held, and touches no successor',
      },
    },
    {
      id: 'T48',
      title: 'Take-over that keeps the old owner in the record',
      seenIn: 'verrou memory store',
      core: engineDecides,
      backends: {
        test: 'T48 what has expired is not shown any more, and a take-over leaves nothing of the old holder',
      },
    },
    {
      id: 'T49',
      title: 'Hash collisions: 16 or 31 bits of key: 64 bits, and the name verified',
      seenIn: 'tooz, with_advisory_lock',
      core: { reason: 'names are stored as they are, never hashed' },
      backends: 'each its own',
      memory: { reason: 'names are stored as they are, never hashed' },
      sqlite: { reason: 'names are stored as they are, never hashed' },
      redis: { reason: 'names are stored as they are, never hashed' },
      redlock: { reason: 'names are stored as they are, never hashed' },
      postgres: {
        reason: 'names are stored as they are; a hash of 64 bits only orders calls inside the server',
      },
      'postgres-advisory': {
        test: 'T49 a collision of keys is told apart from contention, across sessions and within one',
      },
      etcd: {
        reason:
          'names are stored as they are; a hash of 52 bits names a session’s lease, whose record is compared',
      },
      zookeeper: { reason: 'names are stored as they are; a hash of 256 bits names a session' },
      consul: { reason: 'names are stored as they are; a hash of 256 bits names a session’s record' },
      later: { reason: 'only advisory locks have keys that are shorter than the names' },
    },
    {
      id: 'T50',
      title:
        'Postgres session locks through PgBouncer transaction pooling leak; an aborted transaction keeps session locks; a pool hands back the same session, which then re-enters',
      seenIn: 'with_advisory_lock #45',
      core: { reason: 'only PostgreSQL has sessions that a pooler shares' },
      backends: 'as core',
      postgres: {
        test: 'T50 behind a transaction pooler nothing stays locked in the server when all clients are gone (pg)',
      },
      'postgres-advisory': {
        test: 'T50 pg: a transaction pooler is refused, with the reason and the way out',
      },
      later: { reason: 'only PostgreSQL has sessions that a pooler shares' },
    },
    {
      id: 'T51',
      title: 'Backend termination: an `error` event without a listener kills the process',
      seenIn: 'advisory-lock',
      core: { reason: 'there is no server connection that can be terminated' },
      backends: 'each its own',
      memory: { reason: 'there is no server connection that can be terminated' },
      sqlite: { reason: 'there is no server connection that can be terminated' },
      redis: { test: 'T51 G10 a lost connection ends neither the process nor the wait' },
      redlock: { reason: 'it opens no connections of its own; those of the clients are the user’s' },
      postgres: {
        test: 'T51 pg_terminate_backend of every connection with pg, again and again: nothing is lost, and no process dies of an error event',
      },
      'postgres-advisory': {
        test: 'T51 T33 pg: a terminated connection loses the lease at the next keep-alive, and the next acquire works',
      },
      etcd: { test: 'T51 a connection that is reset ends neither the process nor the wait' },
      zookeeper: { test: 'T51 a connection that is reset ends neither the process nor the wait' },
      consul: { test: 'T51 a connection that is reset ends neither the process nor the wait' },
    },
    {
      id: 'T52',
      title:
        'Client on database 3 writes its locks to database 0; Redis Cluster: all keys of one operation in one slot',
      seenIn: 'sesamecare; syncguard: CROSSSLOT',
      core: { reason: 'only Redis has numbered databases and slots' },
      backends: 'as core',
      redis: { test: 'T52 locks are in the client’s own database, under its own prefix (ioredis 6)' },
      redlock: { test: 'T52 the client’s own database and key prefix are kept to' },
      later: { reason: 'only Redis can have it' },
    },
    {
      id: 'T53',
      title: "Leadership released before the leader's work has stopped",
      seenIn: 'kubernetes #139991',
      core: { test: 'T53 close tells holders to stop, waits for the bodies, and only then releases' },
      backends: {
        test: 'C205 G6 T53 closing a locker releases what it holds, ends its waits, and leaves nothing',
      },
    },
  ],
}
