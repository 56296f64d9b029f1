import { open, type TrapSection } from '../../scripts/docs/trap-types.ts'

export const fencing: TrapSection = {
  title: 'Fencing',
  traps: [
    {
      id: 'T35',
      title: "ZooKeeper's sequence suffix restarts when the parent goes, and wraps at 2³¹: use czxid",
      core: { reason: 'only ZooKeeper has sequence suffixes' },
      memory: { reason: 'only ZooKeeper has sequence suffixes' },
      sqlite: { reason: 'only ZooKeeper has sequence suffixes' },
      later: { later: 'zookeeper' },
    },
    {
      id: 'T36',
      title: "Consul's LockIndex restarts at 1 after the key is deleted: use the Raft index of the acquire",
      core: { reason: 'only Consul has a LockIndex' },
      memory: { reason: 'only Consul has a LockIndex' },
      sqlite: { reason: 'only Consul has a LockIndex' },
      later: { later: 'consul' },
    },
    {
      id: 'T37',
      title: 'Token drawn apart from the grant (SET then INCR): the stale holder gets the higher token',
      seenIn: 'simple-redis-mutex',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'redis, postgres' },
    },
    {
      id: 'T38',
      title:
        'Token restarts at 1 after data loss; a TTL on the counter; one counter key per name leaks for ever (25 million keys)',
      seenIn: 'syncguard after FLUSHALL; Redisson MultiLock; Redisson #6510',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'redis' },
    },
    {
      id: 'T39',
      title: 'Re-entry changes the token: it must keep it',
      seenIn: 'Redisson',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T40',
      title:
        'A guard that checks writes only: lost updates (10 % in a Redlock clock-jump run, 0 with reads guarded as well)',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T41',
      title:
        'Check, then write, in two steps: a race; and a guard that keeps its memory in the process forgets at restart',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T42',
      title: 'Tokens through JSON as numbers lose precision above 2⁵³',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T43',
      title: 'A forged or foreign token (another authority, another cluster) must be refused, not remembered',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
  ],
}
