import type { TrapSection } from '../../scripts/docs/trap-types.ts'

const outcomes = { reason: 'outcomes are stored by `idempotent` alone, on SQLite and PostgreSQL' }
const noChunks = { reason: 'answers are read by the client library, and lists are asked for in pages' }
const onePrimary = { reason: 'the client library decides where it connects; there is one primary to ask' }

export const faults: TrapSection = {
  title: 'Found by attacking engines and recipes under faults',
  traps: [
    {
      id: 'T96',
      title:
        'A connection that was left waits for what is in flight, and is not pinged any more: watchers and waiters on it are deaf for ever while new calls work',
      seenIn: 'Holdfast on etcd',
      core: {
        reason:
          'core limits its own calls in time; what still waits on a connection is the backend’s to settle',
      },
      backends: 'each its own',
      memory: { reason: 'it has no connections' },
      sqlite: { reason: 'every call is answered by the file, in the same turn' },
      redis: { test: 'T96 a server that accepts the connection for messages and says nothing' },
      redlock: {
        reason:
          'one connection to each node; a node that does not answer is silent, and the others decide (T76)',
      },
      postgres: {
        test: 'T96 a black hole: the call settles with its signal, and the pool does not fill up with what hangs',
      },
      'postgres-advisory': {
        reason:
          'a session has one connection; when it is given up, it is ended, and all its calls are settled',
      },
      etcd: { test: 'T96 every request settles within a bound, also without a limit of its caller' },
      zookeeper: {
        test: 'T96 G10 a waiter on a member that freezes is granted, after another call was given up',
      },
      consul: { test: 'T96 T103 each call settles with a true outcome, and nothing is left' },
    },
    {
      id: 'T97',
      title:
        'A value that is noted before a wait: ticks that fall due while a schedule waits for its lease are taken for overruns, and are lost',
      seenIn: 'Holdfast’s schedules',
      core: { test: "T97 with missed: 'all', each tick that fell due while no job could run is run" },
      backends: { test: "T97 missed: 'all' runs each tick of an outage" },
      redlock: { reason: 'it stores no data, so it has no schedules' },
      'postgres-advisory': { reason: 'it stores no data, so it has no schedules' },
    },
    {
      id: 'T98',
      title:
        'A proposal is dropped when the leader dies, and that is told only after 7 s: a client that waits for it loses short leases',
      seenIn: 'etcd',
      core: { reason: 'the engine decides this; core asks once' },
      backends: 'each its own',
      memory: { reason: 'it has no leader' },
      sqlite: { reason: 'it has no leader' },
      redis: { reason: 'a primary answers by itself, and proposes nothing' },
      redlock: { reason: 'each node answers by itself, and proposes nothing' },
      postgres: { reason: 'a primary answers by itself; its death ends the connection' },
      'postgres-advisory': { reason: 'a primary answers by itself; its death ends the connection' },
      etcd: {
        test: 'T98 what is in flight when the leader is gone (kill) is asked again, and answered by its successor',
      },
      zookeeper: {
        reason:
          'a member that loses its leader closes the connections of its clients at once, so nobody waits for what was dropped',
      },
      consul: { test: 'T98 what is in flight when the leader is gone (pause) is asked again' },
    },
    {
      id: 'T99',
      title: 'A full engine refuses the mark that says "given up", and with it the end of what one has',
      seenIn: 'Holdfast on etcd: a waiter’s time-out cost all leases of its session',
      core: { reason: 'the engine decides how an attempt is given up' },
      backends: 'each its own',
      memory: { reason: 'it is full when the process is' },
      sqlite: {
        reason:
          'on a full disk nothing is released, and leases end at their deadlines; stated in docs/backends/sqlite.md',
      },
      redis: { test: 'T99 what is given up while the memory of the server is full is given up' },
      redlock: { test: 'T99 what is given up while the memory of the nodes is full is given up' },
      postgres: {
        reason: 'on a full disk a release may fail like every write, and the lease ends at its deadline',
      },
      'postgres-advisory': { reason: 'an unlock, or the end of the connection, needs no space' },
      etcd: {
        test: 'T99 refuses new leases, and lets go of waiters and holders; nothing becomes unresolved',
      },
      zookeeper: {
        reason:
          'a member whose disk is full ends, and the others go on; a majority of full disks ends the ensemble, and leases end at their deadlines',
      },
      consul: {
        reason:
          'Consul sets no limit to what is stored; a server whose disk is full ends, and the others go on',
      },
    },
    {
      id: 'T100',
      title:
        'A large answer is read by joining all chunks at each chunk: quadratic, and it blocks the keep-alive behind it',
      seenIn: 'Holdfast on etcd: 4.4 s instead of 0.2 s for 2,000 names with data',
      core: { reason: 'core reads no bytes' },
      backends: 'each its own',
      memory: { reason: 'its answers are objects' },
      sqlite: { reason: 'its rows are read within the process, in pages' },
      redis: noChunks,
      redlock: noChunks,
      postgres: noChunks,
      'postgres-advisory': noChunks,
      etcd: {
        test: 'T100 a watch from 1,000 leases back tells all of them, and a keep-alive is answered meanwhile',
      },
      zookeeper: {
        reason: 'messages are cut out of chunks by the kit, and copied a few times (kit/frames.test.ts)',
      },
      consul: { test: 'T100 T103 an answer without an end is given up, however fast it comes' },
    },
    {
      id: 'T101',
      title: 'Failures that arrive together each move on to the next member: the healthy one is skipped',
      seenIn: 'Holdfast on etcd',
      core: { reason: 'the backend decides which member it asks' },
      backends: 'each its own',
      memory: { reason: 'it has no members' },
      sqlite: { reason: 'it has no members' },
      redis: { reason: 'the client library decides which node of a Cluster or Sentinel it asks' },
      redlock: { reason: 'it asks all nodes at once' },
      postgres: onePrimary,
      'postgres-advisory': onePrimary,
      etcd: { test: 'requests that one member refuses, all come to the next one' },
      zookeeper: {
        reason: 'a session has one connection, and one attempt at a time to attach it to a member',
      },
      consul: { test: 'T101 requests that one member refuses together all come to the next one' },
    },
    {
      id: 'T102',
      title:
        'Shared work (a token, an opening, a first contact) is bound to the cancellation or the time limit of its first caller: others fail with it',
      seenIn: 'Holdfast on etcd',
      core: { test: 'T102 a cancelled caller leaves the others, and the last one ends the run' },
      backends: 'as core',
      redis: { test: 'T102 what the first caller starts and gives up goes on for the second' },
      etcd: { test: 'T102 the token is asked for once' },
    },
    {
      id: 'T103',
      title: 'A malformed answer is read as an empty one, or throws in a listener and ends the process',
      seenIn: 'Holdfast on etcd',
      core: { reason: 'core reads no bytes' },
      backends: 'each its own',
      memory: { reason: 'its answers are objects' },
      sqlite: { test: 'T103 garbage and forgeries on the socket grant nothing and break nothing' },
      redis: {
        test: 'T103 G11 a grant without a token, by a process without `fencing`, fails its waiter and nothing else',
      },
      redlock: {
        reason: 'the client library reads the protocol; a node that answers with an error has no vote',
      },
      postgres: { reason: 'the client library reads the protocol; rows are those of our own functions' },
      'postgres-advisory': {
        reason: 'the client library reads the protocol; rows are those of our own statements',
      },
      etcd: { test: 'T103 an answer that is not valid is no answer' },
      zookeeper: { test: 'T96 T103 each call settles with a true outcome, and nothing is left' },
      consul: { test: 'T96 T103 each call settles with a true outcome, and nothing is left' },
    },
    {
      id: 'T104',
      title:
        'A `catch` that is meant for our own step also covers the user’s call-back: its failure is swallowed, and the work is done twice',
      seenIn: 'Holdfast’s `idempotent`',
      core: outcomes,
      backends: 'as core',
      sqlite: { test: 'T104 a storeError that throws is told, and the work is not done twice' },
      postgres: { test: 'T104 a storeError that throws is told, and the work is not done twice' },
      later: outcomes,
    },
    {
      id: 'T105',
      title:
        '`-wal` and `-shm` removed under open connections: old processes go on in the unlinked files, new ones start over, with the same tokens',
      seenIn: 'SQLite',
      core: { reason: 'only SQLite is a file that others may remove' },
      backends: 'as core',
      sqlite: { test: 'T105 a -wal file that is removed ends the sessions, and the error names it' },
      later: { reason: 'only SQLite is a file that others may remove' },
    },
    {
      id: 'T106',
      title:
        'An old snapshot elsewhere (pg_dump) keeps every dead version of a row that each job rewrites: look-ups walk all of them',
      seenIn: 'Holdfast’s ordered jobs on PostgreSQL',
      core: { reason: 'only PostgreSQL has jobs, and keeps versions of rows for old snapshots' },
      backends: 'as core',
      postgres: {
        test: 'T106 under an open snapshot, what a job of a key costs hardly grows with the jobs before it',
      },
      later: { reason: 'only PostgreSQL has jobs, and keeps versions of rows for old snapshots' },
    },
    {
      id: 'T107',
      title:
        'Two batches in flight are a queue over a network: half of the rate of clients that pipeline. And many small batches pay the price of a whole script each',
      seenIn: 'Holdfast on Redis',
      core: { reason: 'the backend decides how its requests leave' },
      backends: 'each its own',
      memory: { reason: 'it has no batches' },
      sqlite: { reason: 'no network lies between the process and the file' },
      redis: {
        reason:
          'what is asked for in one turn of the event loop leaves together, and waits for no answer; up to 64 batches are in flight',
      },
      redlock: {
        reason:
          'one batch is in flight to each node, and what comes meanwhile leaves together; on a slow network that costs time and loses nothing',
      },
      postgres: {
        reason: 'a batch is one statement, and each in flight takes a connection of the user’s pool',
      },
      'postgres-advisory': { reason: 'statements of a session share its one connection, as the locks do' },
      etcd: { reason: 'up to sixteen transactions are in flight' },
      zookeeper: { reason: 'up to sixteen transactions are in flight' },
      consul: { reason: 'up to six transactions are in flight, each with up to sixteen requests' },
    },
    {
      id: 'T108',
      title:
        'A script that takes five times as long as the raw commands, on an engine’s only thread, which everybody shares',
      seenIn: 'Holdfast on Redis',
      core: { reason: 'only Redis runs scripts on a thread that everybody shares' },
      backends: 'as core',
      redis: { test: 'T108 a pair alone runs the commands of the lock, and with tokens one more' },
      redlock: { test: 'T108 when nothing is held a vote' },
      later: { reason: 'only Redis runs scripts on a thread that everybody shares' },
    },
    {
      id: 'T109',
      title:
        'Two calls that fall into the same tick of a clock as a picture are told twice, because "older than the picture" is asked with `>`',
      seenIn: 'Holdfast on Redis',
      core: { reason: 'where core compares lists, it compares claims, not times' },
      backends: 'each its own',
      memory: { reason: 'the picture and its place in the log are taken in one turn; the log counts' },
      sqlite: {
        test: 'T109 shows current holders in full after a gap, each once, and goes on only from the end of the picture',
      },
      redis: { test: 'T109 in the same millisecond as the look at it is told once' },
      redlock: { reason: 'it has no log of its own: core compares lists' },
      postgres: { reason: 'the picture and its place in the log are one snapshot of the server' },
      'postgres-advisory': { reason: 'it has no log of its own: core compares lists' },
      etcd: { reason: 'the picture is read at the revision after which the watch goes on' },
      zookeeper: { reason: 'the picture is made of the model that the next events change' },
      consul: { reason: 'it has no log of its own: core compares lists' },
    },
    {
      id: 'T110',
      title:
        'A test that is red when the machine is busy: real time in an assertion or in a hook, or an effect that is answered before it is there',
      core: { reason: 'its tests use a clock that moves only when they say so' },
      backends: {
        test: 'C148 T110 a holder that was released by force may acquire again, with a new attempt',
      },
      'postgres-advisory': {
        test: 'T110 after a force release its old holder may acquire, although the answer to its unlock is not there yet',
      },
    },
  ],
}
