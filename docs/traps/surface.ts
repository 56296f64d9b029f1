import type { TrapSection } from '../../scripts/docs/trap-types.ts'

export const surface: TrapSection = {
  title: 'Many at once, command line, types',
  traps: [
    {
      id: 'T54',
      title:
        'Multi-lock: each lock gets the full time-out; continues after an error; earlier ones expire while later ones are awaited: one deadline, re-verify all at the end',
      seenIn: 'Curator, Redisson',
      core: { test: 'T54 is the same whatever order the names are given in' },
      backends: {
        test: 'C199 T54 G6 acquireAll takes all or nothing: when one is not to be had, the others are given back',
      },
    },
    {
      id: 'T55',
      title: '`quorum: 1` of 3 accepted: nonsense options are refused',
      seenIn: 'redlock-universal',
      core: { test: 'T55 names, options objects and option names' },
      backends: 'as core',
      redlock: { test: 'T55 a quorum that is no majority, or more than there are, is refused' },
      later: { reason: 'only Redlock asks several servers' },
    },
    {
      id: 'T56',
      title: '"Is it locked?" answers `false` when the server is down',
      seenIn: 'redlock-universal',
      core: { test: 'T56 an engine that is down is not a free lock' },
      backends: {
        test: 'C154 T56 a check says no to an expired holder, and to the predecessor of the holder',
      },
      redis: { test: 'T56 G11 a server that is down is an error, never an answer' },
      redlock: {
        test: 'T56 a name is not called free because nodes are down: what may be held is shown, and without a majority nothing',
      },
      postgres: { test: 'T56 G11 a server that is down is an error, never an answer (pg)' },
      'postgres-advisory': { test: 'T56 G11 pg: a server that is down is an error, never an answer' },
      etcd: { test: 'T56 G11 without a majority a call fails, and is never answered' },
      zookeeper: { test: 'T56 G11 without a majority a call fails, and is never answered' },
      consul: { test: 'T56 G11 without a majority a call fails, and is never answered' },
    },
    {
      id: 'T57',
      title:
        '`run` command: signals before and after acquisition, SIGKILL of the parent, grandchildren, exit code, loss while the child runs',
      seenIn: 'etcdctl, consul lock #9788, #2489',
      core: { test: 'T57 SIGKILL of holdfast ends the command and its children' },
      backends: 'as core',
      later: { reason: 'the command line sees leases, not engines' },
    },
    {
      id: 'T58',
      title: 'Types that do not resolve under NodeNext or a bundler',
      seenIn: 'redlock 5',
      core: { test: 'T58 the types of every entry point resolve' },
      backends: 'as core',
      later: { reason: 'a matter of the package, not of an engine' },
    },
    {
      id: 'T59',
      title: 'Convenience wrapper that hides fence and signal from the body',
      seenIn: 'syncguard `lock()`',
      core: { test: 'T59 the body gets the lease with its fence and its signal, and its result is returned' },
      backends: 'as core',
    },
    {
      id: 'T60',
      title: 'No event when the lease is released through the handle',
      seenIn: 'syncguard telemetry',
      core: { test: 'T60 released through the handle' },
      backends: 'as core',
    },
  ],
}
