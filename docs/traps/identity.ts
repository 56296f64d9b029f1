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
      later: { later: 'all' },
    },
    {
      id: 'T45',
      title: "Owner per object instead of per acquisition: the first `run()` releases the second's lock",
      seenIn: 'verrou',
      core: { test: 'T45 every acquisition is an attempt of its own, also of the same locker and name' },
      memory: { test: 'C109 T45 a reader that releases twice does not take another reader along' },
      sqlite: { test: 'C109 T45 a reader that releases twice does not take another reader along' },
      later: { later: 'all' },
    },
    {
      id: 'T46',
      title: 'Release without an owner check, or check and delete in two steps',
      seenIn: 'redis-lock, redis-leader, node-resque',
      core: { reason: 'The engine decides this; core only passes its answer on.' },
      memory: { test: 'C36 T46 G7 a release with another attempt touches nothing' },
      sqlite: { test: 'C36 T46 G7 a release with another attempt touches nothing' },
      later: { later: 'all' },
    },
    {
      id: 'T47',
      title: "Release of an expired lock takes seconds, throws, and replaces the body's own result or error",
      seenIn: 'redlock 5, sesamecare',
      core: { test: 'G11 T47 a failed release replaces neither the result nor the error of the body' },
      memory: { reason: 'Core sees to it, in the same way for every backend.' },
      sqlite: { reason: 'Core sees to it, in the same way for every backend.' },
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
      later: { later: 'all' },
    },
    {
      id: 'T49',
      title: 'Hash collisions: 16 or 31 bits of key: 64 bits, and the name verified',
      seenIn: 'tooz, with_advisory_lock',
      core: { reason: 'names are stored as they are, never hashed' },
      memory: { reason: 'names are stored as they are, never hashed' },
      sqlite: { reason: 'names are stored as they are, never hashed' },
      later: { later: 'postgres advisory' },
    },
    {
      id: 'T50',
      title:
        'Postgres session locks through PgBouncer transaction pooling leak; an aborted transaction keeps session locks; a pool hands back the same session, which then re-enters',
      seenIn: 'with_advisory_lock #45',
      core: { reason: 'there is no connection pooler in between' },
      memory: { reason: 'there is no connection pooler in between' },
      sqlite: { reason: 'there is no connection pooler in between' },
      later: { later: 'postgres advisory' },
    },
    {
      id: 'T51',
      title: 'Backend termination: an `error` event without a listener kills the process',
      seenIn: 'advisory-lock',
      core: { reason: 'there is no server connection that can be terminated' },
      memory: { reason: 'there is no server connection that can be terminated' },
      sqlite: { reason: 'there is no server connection that can be terminated' },
      later: { later: 'postgres' },
    },
    {
      id: 'T52',
      title:
        'Client on database 3 writes its locks to database 0; Redis Cluster: all keys of one operation in one slot',
      seenIn: 'sesamecare; syncguard: CROSSSLOT',
      core: { reason: 'there are no numbered databases and no slots' },
      memory: { reason: 'there are no numbered databases and no slots' },
      sqlite: { reason: 'there are no numbered databases and no slots' },
      later: { later: 'redis' },
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
      later: { later: 'all' },
    },
  ],
}
