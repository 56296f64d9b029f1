import type { TrapSection } from '../../scripts/docs/trap-types.ts'

export const identity: TrapSection = {
  title: 'Identity and release',
  traps: [
    {
      id: 'T44',
      title: 'Owner = hostname or `Math.random()`: an unguessable id per attempt',
      seenIn: 'ShedLock, verrou',
      core: { test: 'T44 an id is 128 bits as 22 characters of base64url' },
      memory: { reason: 'Core sees to it, in the same way for every backend.' },
      sqlite: { reason: 'Core sees to it, in the same way for every backend.' },
      redis: { reason: 'Core sees to it, in the same way for every backend.' },
      redlock: { reason: 'Core sees to it, in the same way for every backend.' },
      postgres: { reason: 'Core sees to it, in the same way for every backend.' },
      'postgres-advisory': { reason: 'Core sees to it, in the same way for every backend.' },
      later: { later: 'all' },
    },
    {
      id: 'T45',
      title: "Owner per object instead of per acquisition: the first `run()` releases the second's lock",
      seenIn: 'verrou',
      core: { test: 'T45 every acquisition is an attempt of its own, also of the same locker and name' },
      memory: { test: 'C109 T45 a reader that releases twice does not take another reader along' },
      sqlite: { test: 'C109 T45 a reader that releases twice does not take another reader along' },
      redis: { test: 'C109 T45 a reader that releases twice does not take another reader along' },
      redlock: { reason: 'every acquisition is an attempt of its own, and its lock has a value of its own' },
      postgres: { test: 'C109 T45 a reader that releases twice does not take another reader along' },
      'postgres-advisory': {
        test: 'C109 T45 a reader that releases twice does not take another reader along',
      },
      later: { later: 'all' },
    },
    {
      id: 'T46',
      title: 'Release without an owner check, or check and delete in two steps',
      seenIn: 'redis-lock, redis-leader, node-resque',
      core: { reason: 'The engine decides this; core only passes its answer on.' },
      memory: { test: 'C36 T46 G7 a release with another attempt touches nothing' },
      sqlite: { test: 'C36 T46 G7 a release with another attempt touches nothing' },
      redis: { test: 'C36 T46 G7 a release with another attempt touches nothing' },
      redlock: { test: 'C36 T46 G7 a release with another attempt touches nothing' },
      postgres: { test: 'C36 T46 G7 a release with another attempt touches nothing' },
      'postgres-advisory': { test: 'C36 T46 G7 a release with another attempt touches nothing' },
      later: { later: 'all' },
    },
    {
      id: 'T47',
      title: "Release of an expired lock takes seconds, throws, and replaces the body's own result or error",
      seenIn: 'redlock 5, sesamecare',
      core: { test: 'G11 T47 a failed release replaces neither the result nor the error of the body' },
      memory: { reason: 'Core sees to it, in the same way for every backend.' },
      sqlite: { reason: 'Core sees to it, in the same way for every backend.' },
      redis: { reason: 'Core sees to it, in the same way for every backend.' },
      redlock: {
        test: 'T47 the release of what has expired answers at once that it is not held, and touches no successor',
      },
      postgres: { reason: 'Core sees to it, in the same way for every backend.' },
      'postgres-advisory': { reason: 'Core sees to it, in the same way for every backend.' },
      later: { later: 'all' },
    },
    {
      id: 'T48',
      title: 'Take-over that keeps the old owner in the record',
      seenIn: 'verrou memory store',
      core: { reason: 'The engine decides this; core only passes its answer on.' },
      memory: {
        test: 'T48 what has expired is not shown any more, and a take-over leaves nothing of the old holder',
      },
      sqlite: {
        test: 'T48 what has expired is not shown any more, and a take-over leaves nothing of the old holder',
      },
      redis: {
        test: 'T48 what has expired is not shown any more, and a take-over leaves nothing of the old holder',
      },
      redlock: {
        test: 'T48 what has expired is not shown any more, and a take-over leaves nothing of the old holder',
      },
      postgres: {
        test: 'T48 what has expired is not shown any more, and a take-over leaves nothing of the old holder',
      },
      'postgres-advisory': {
        test: 'T48 what has expired is not shown any more, and a take-over leaves nothing of the old holder',
      },
      later: { later: 'all' },
    },
    {
      id: 'T49',
      title: 'Hash collisions: 16 or 31 bits of key: 64 bits, and the name verified',
      seenIn: 'tooz, with_advisory_lock',
      core: { reason: 'names are stored as they are, never hashed' },
      memory: { reason: 'names are stored as they are, never hashed' },
      sqlite: { reason: 'names are stored as they are, never hashed' },
      redis: { reason: 'names are stored as they are, never hashed' },
      redlock: { reason: 'names are stored as they are, never hashed' },
      postgres: {
        reason:
          'names are stored as they are; a hash of 64 bits only decides who waits for whom inside a call',
      },
      'postgres-advisory': {
        test: 'T49 a collision of keys is told apart from contention, across sessions and within one',
      },
      later: { reason: 'only advisory locks have keys that are shorter than the names' },
    },
    {
      id: 'T50',
      title:
        'Postgres session locks through PgBouncer transaction pooling leak; an aborted transaction keeps session locks; a pool hands back the same session, which then re-enters',
      seenIn: 'with_advisory_lock #45',
      core: { reason: 'there is no connection pooler in between' },
      memory: { reason: 'there is no connection pooler in between' },
      sqlite: { reason: 'there is no connection pooler in between' },
      redis: { reason: 'there is no connection pooler in between' },
      redlock: { reason: 'there is no connection pooler in between' },
      postgres: {
        test: 'T50 behind a transaction pooler nothing stays locked in the server when everybody is gone (pg)',
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
      memory: { reason: 'there is no server connection that can be terminated' },
      sqlite: { reason: 'there is no server connection that can be terminated' },
      redis: { test: 'T51 G10 a lost connection ends neither the process nor the wait' },
      redlock: { reason: 'it opens no connections of its own; those of the clients are the user’s' },
      postgres: {
        test: 'T51 pg_terminate_backend of every connection with pg, again and again: nothing is lost, and nobody dies of an error event',
      },
      'postgres-advisory': {
        test: 'T51 T33 pg: a terminated connection loses the lease at the next keep-alive, and the next acquire works',
      },
      later: { later: 'all' },
    },
    {
      id: 'T52',
      title:
        'Client on database 3 writes its locks to database 0; Redis Cluster: all keys of one operation in one slot',
      seenIn: 'sesamecare; syncguard: CROSSSLOT',
      core: { reason: 'there are no numbered databases and no slots' },
      memory: { reason: 'there are no numbered databases and no slots' },
      sqlite: { reason: 'there are no numbered databases and no slots' },
      redis: { test: 'T52 locks are in the client’s own database, under its own prefix (ioredis 6)' },
      redlock: { test: 'T52 the client’s own database and key prefix are kept to' },
      postgres: { reason: 'there are no numbered databases and no slots' },
      'postgres-advisory': { reason: 'there are no numbered databases and no slots' },
      later: { reason: 'only Redis can have it' },
    },
    {
      id: 'T53',
      title: "Leadership released before the leader's work has stopped",
      seenIn: 'kubernetes #139991',
      core: { test: 'T53 close tells holders to stop, waits for the bodies, and only then releases' },
      memory: {
        test: 'C205 G6 T53 closing a locker releases what it holds, ends its waits, and leaves nothing',
      },
      sqlite: {
        test: 'C205 G6 T53 closing a locker releases what it holds, ends its waits, and leaves nothing',
      },
      redis: {
        test: 'C205 G6 T53 closing a locker releases what it holds, ends its waits, and leaves nothing',
      },
      redlock: {
        test: 'C205 G6 T53 closing a locker releases what it holds, ends its waits, and leaves nothing',
      },
      postgres: {
        test: 'C205 G6 T53 closing a locker releases what it holds, ends its waits, and leaves nothing',
      },
      'postgres-advisory': {
        test: 'C205 G6 T53 closing a locker releases what it holds, ends its waits, and leaves nothing',
      },
      later: { later: 'all' },
    },
  ],
}
