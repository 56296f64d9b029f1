import { open, type TrapSection } from '../../scripts/docs/trap-types.ts'

export const surface: TrapSection = {
  title: 'Many at once, command line, types',
  traps: [
    {
      id: 'T54',
      title:
        'Multi-lock: each lock gets the full time-out; continues after an error; earlier ones expire while later ones are awaited: one deadline, re-verify all at the end',
      seenIn: 'Curator, Redisson',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T55',
      title: '`quorum: 1` of 3 accepted: nonsense options are refused',
      seenIn: 'redlock-universal',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'redlock' },
    },
    {
      id: 'T56',
      title: '"Is it locked?" answers `false` when the server is down',
      seenIn: 'redlock-universal',
      core: open,
      memory: open,
      sqlite: open,
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
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T60',
      title: 'No event when the lease is released through the handle',
      seenIn: 'syncguard telemetry',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
  ],
}
