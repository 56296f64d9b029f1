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
      memory: {
        test: 'C199 T54 G6 acquireAll takes all or nothing: when one is not to be had, the others are given back',
      },
      sqlite: {
        test: 'C199 T54 G6 acquireAll takes all or nothing: when one is not to be had, the others are given back',
      },
      later: { later: 'all' },
    },
    {
      id: 'T55',
      title: '`quorum: 1` of 3 accepted: nonsense options are refused',
      seenIn: 'redlock-universal',
      core: { test: 'T55 names, options objects and option names' },
      memory: { reason: 'Core sees to it, in the same way for every backend.' },
      sqlite: { reason: 'Core sees to it, in the same way for every backend.' },
      later: { later: 'redlock' },
    },
    {
      id: 'T56',
      title: '"Is it locked?" answers `false` when the server is down',
      seenIn: 'redlock-universal',
      core: { test: 'T56 an engine that is down is not a free lock' },
      memory: { test: 'C154 T56 a check says no to who has expired, and to the predecessor of the holder' },
      sqlite: { test: 'C154 T56 a check says no to who has expired, and to the predecessor of the holder' },
      later: { later: 'all with a connection' },
    },
    {
      id: 'T57',
      title:
        '`run` command: signals before and after acquisition, SIGKILL of the parent, grandchildren, exit code, loss while the child runs',
      seenIn: 'etcdctl, consul lock #9788, #2489',
      core: { reason: 'the command line is not part of this release' },
      memory: { reason: 'the command line is not part of this release' },
      sqlite: { reason: 'the command line is not part of this release' },
      later: { later: 'command line' },
    },
    {
      id: 'T58',
      title: 'Types that do not resolve under NodeNext or a bundler',
      seenIn: 'redlock 5',
      core: { test: 'T58 the types of every entry point resolve' },
      memory: { reason: 'a matter of the package, not of an engine' },
      sqlite: { reason: 'a matter of the package, not of an engine' },
      later: { reason: 'a matter of the package, not of an engine' },
    },
    {
      id: 'T59',
      title: 'Convenience wrapper that hides fence and signal from the body',
      seenIn: 'syncguard `lock()`',
      core: { test: 'T59 the body gets the lease with its fence and its signal, and its result is returned' },
      memory: { reason: 'Core sees to it, in the same way for every backend.' },
      sqlite: { reason: 'Core sees to it, in the same way for every backend.' },
      later: { later: 'all' },
    },
    {
      id: 'T60',
      title: 'No event when the lease is released through the handle',
      seenIn: 'syncguard telemetry',
      core: { test: 'T60 released through the handle' },
      memory: { reason: 'Core sees to it, in the same way for every backend.' },
      sqlite: { reason: 'Core sees to it, in the same way for every backend.' },
      later: { later: 'all' },
    },
  ],
}
