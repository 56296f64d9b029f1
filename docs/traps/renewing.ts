import type { TrapSection } from '../../scripts/docs/trap-types.ts'

export const renewing: TrapSection = {
  title: 'Renewing',
  traps: [
    {
      id: 'T29',
      title: 'Cancel-before-schedule race: a renewal outlives the release and the lock is immortal',
      seenIn: 'Redisson #7272',
      core: { test: 'T29 no renewal outlives the release: a released name stays free' },
      backends: 'as core',
    },
    {
      id: 'T30',
      title:
        'One thrown error ends the renewal loop silently, or becomes an unhandled rejection that kills the process',
      seenIn: 'redis-semaphore #199, node-redisson, ShedLock',
      core: { test: 'T14 T30 what fails stops neither the rest nor the process' },
      backends: 'as core',
    },
    {
      id: 'T31',
      title: "A renewal resurrects an expired lock or renews a successor's",
      seenIn: 'redsync SetNXOnExtend, redis-semaphore #175',
      core: {
        test: 'G4 T31 an answer that comes after the deadline revives nothing, and the engine’s side is given back',
      },
      backends: { test: 'C12 T31 a keep-alive does not revive an expired session' },
      redlock: { test: 'T31 what a majority has lost is lost, and not set again' },
    },
    {
      id: 'T32',
      title: 'TTL so short that renewal becomes a hot loop',
      seenIn: 'redlock-universal: 8,476 calls in 1 s',
      core: { test: 'T32 a short TTL does not make renewal a hot loop, also while the engine fails' },
      backends: 'as core',
    },
    {
      id: 'T33',
      title:
        'Black-holed connection: renewal failure alone must end the lease; no event from the socket will come',
      seenIn: 'Consul #18271',
      core: { test: 'G3 T2 T16 T33 a frozen engine: the lease is lost at its deadline, not later' },
      backends: {
        test: 'C197 G3 T33 without confirmed renewals a lease stops believing before the engine gives the name away',
      },
      postgres: {
        test: 'T33 a listening connection in a black hole is found out: it asks until it hears again',
      },
      'postgres-advisory': {
        test: 'G3 T16 T33 a black hole: the holder stops believing, then the server ends its connection, then the next one gets it',
      },
      etcd: { test: 'T16 T33 G3 cut off from all members, a lease is lost at its deadline' },
      zookeeper: { test: 'T16 T33 G3 cut off from all members, a lease is lost at its deadline' },
      consul: { test: 'T16 T33 G3 cut off from all members, a lease is lost at its deadline' },
    },
    {
      id: 'T34',
      title:
        'A held lock key is removed by an operator, by eviction or by FLUSHALL: noticed at the next keep-alive, reported as lost',
      core: { test: 'T34 dual-owner-suspected and lost, when the engine says another' },
      backends: {
        test: 'C145 G3 T34 a holder that was released by force learns it, with the reason, at its next keep-alive',
      },
      redis: { test: 'T34 FLUSHALL is noticed at the next keep-alive, and told as lost' },
      redlock: {
        test: 'C149 T34 a record that was removed from outside is reported as lost at the next keep-alive, and stays away',
      },
      etcd: {
        test: 'C149 T34 a record that was removed from outside is reported as lost at the next keep-alive, and stays away',
      },
      zookeeper: {
        test: 'C149 T34 a record that was removed from outside is reported as lost at the next keep-alive, and stays away',
      },
      consul: {
        test: 'C149 T34 a record that was removed from outside is reported as lost at the next keep-alive, and stays away',
      },
    },
  ],
}
