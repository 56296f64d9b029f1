import { engineDecides, type TrapSection } from '../../scripts/docs/trap-types.ts'

export const fencing: TrapSection = {
  title: 'Fencing',
  traps: [
    {
      id: 'T35',
      title: "ZooKeeper's sequence suffix restarts when the parent goes, and wraps at 2³¹: use czxid",
      seenIn: 'kazoo #730, go-zookeeper/zk #65',
      core: { reason: 'only ZooKeeper has sequence suffixes' },
      backends: 'as core',
      zookeeper: {
        test: 'T35 they are used up: the name starts anew when it is free, with its data, and its tokens go on',
      },
    },
    {
      id: 'T36',
      title: "Consul's LockIndex restarts at 1 after the key is deleted: use the Raft index of the acquire",
      core: { reason: 'only Consul has a LockIndex' },
      backends: 'as core',
      consul: { test: 'T36 restarts its lock index when it was deleted, and not its other indexes' },
      later: { reason: 'only Consul has a LockIndex' },
    },
    {
      id: 'T37',
      title: 'Token drawn apart from the grant (SET then INCR): the stale holder gets the higher token',
      seenIn: 'simple-redis-mutex',
      core: engineDecides,
      backends: {
        test: 'C53 G2 T37 the token is drawn with the grant: under contention no successor has a lower one',
      },
      redis: {
        test: 'T37 the token is drawn with the grant: of two that race, the later one has the higher token',
      },
      redlock: { reason: 'it issues no tokens, by type' },
      later: { reason: 'etcd, ZooKeeper and Consul number the grant itself' },
    },
    {
      id: 'T38',
      title:
        'Token restarts at 1 after data loss; a TTL on the counter; one counter key per name leaks for ever (25 million keys)',
      seenIn: 'syncguard after FLUSHALL; Redisson MultiLock; Redisson #6510',
      core: engineDecides,
      backends: { test: 'C45 G2 T38 tokens of one name increase from holder to holder' },
      redis: { test: 'T38 G2 tokens increase over FLUSHALL, and over a restart without persistence' },
      redlock: { reason: 'it issues no tokens, by type' },
      postgres: { test: 'C50 G2 T38 tokens increase over a restart of the engine' },
      'postgres-advisory': { test: 'C50 G2 T38 tokens increase over a restart of the engine' },
      later: { reason: 'only Redis can have it' },
    },
    {
      id: 'T39',
      title: 'Re-entry changes the token: it must keep it',
      seenIn: 'Redisson',
      core: { test: 'T39 re-entry keeps the token, and the engine is not asked' },
      backends: {
        test: 'C31 T12 T39 a try is idempotent in its attempt: asked again, it answers with the same grant',
      },
      redlock: { reason: 'it issues no tokens, by type' },
    },
    {
      id: 'T40',
      title:
        'A guard that checks writes only: lost updates (10 % in a Redlock clock-jump run, 0 with reads guarded as well)',
      core: engineDecides,
      backends: { test: 'D5 T40 a read of the new holder is enough to shut the old one out' },
      redlock: { reason: 'its leases are no proof for a guard, by type' },
      'postgres-advisory': { reason: 'a matter of the guard, not of the engine that issued the token' },
      etcd: { reason: 'a matter of the guard, not of the engine that issued the token' },
      zookeeper: { reason: 'a matter of the guard, not of the engine that issued the token' },
      consul: { reason: 'a matter of the guard, not of the engine that issued the token' },
    },
    {
      id: 'T41',
      title:
        'Check, then write, in two steps: a race; and a guard that keeps its memory in the process forgets at restart',
      core: engineDecides,
      backends: { test: 'D63 T41 concurrent runs wait for each other: 50 increments at once make 50' },
      redlock: { reason: 'its leases are no proof for a guard, by type' },
      'postgres-advisory': { reason: 'a matter of the guard, not of the engine that issued the token' },
      etcd: { reason: 'a matter of the guard, not of the engine that issued the token' },
      zookeeper: { reason: 'a matter of the guard, not of the engine that issued the token' },
      consul: { reason: 'a matter of the guard, not of the engine that issued the token' },
    },
    {
      id: 'T42',
      title: 'Tokens through JSON as numbers lose precision above 2⁵³',
      core: { test: 'T42 tokens are shown with all their digits' },
      backends: { test: 'D9 T42 neighbours above 2^53, which a double cannot tell apart, are told apart' },
      redis: { test: 'T69 T42 tokens of the same microsecond are whole numbers, all different' },
      redlock: { reason: 'it issues no tokens, by type' },
      'postgres-advisory': { reason: 'a matter of the guard, not of the engine that issued the token' },
      etcd: { reason: 'a matter of the guard, not of the engine that issued the token' },
      zookeeper: { reason: 'a matter of the guard, not of the engine that issued the token' },
      consul: { reason: 'a matter of the guard, not of the engine that issued the token' },
    },
    {
      id: 'T43',
      title: 'A forged or foreign token (another authority, another cluster) must be refused, not remembered',
      core: { test: 'malformed ones are refused' },
      backends: {
        test: 'D33 T43 several proofs: one foreign one refuses all, also among the first that a guard ever sees',
      },
      redlock: { reason: 'its leases are no proof for a guard, by type' },
      'postgres-advisory': { reason: 'a matter of the guard, not of the engine that issued the token' },
      etcd: { reason: 'a matter of the guard, not of the engine that issued the token' },
      zookeeper: { reason: 'a matter of the guard, not of the engine that issued the token' },
      consul: { reason: 'a matter of the guard, not of the engine that issued the token' },
    },
  ],
}
