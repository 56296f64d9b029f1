import type { TrapSection } from '../../scripts/docs/trap-types.ts'

export const renewing: TrapSection = {
  title: 'Renewing',
  traps: [
    {
      id: 'T29',
      title: 'Cancel-before-schedule race: a renewal outlives the release and the lock is immortal',
      seenIn: 'Redisson #7272',
      core: { test: 'T29 no renewal outlives the release: a released name stays free' },
      memory: { reason: 'Core sees to it, in the same way for every backend.' },
      sqlite: { reason: 'Core sees to it, in the same way for every backend.' },
      later: { later: 'all' },
    },
    {
      id: 'T30',
      title:
        'One thrown error ends the renewal loop silently, or becomes an unhandled rejection that kills the process',
      seenIn: 'redis-semaphore #199, node-redisson, ShedLock',
      core: { test: 'T14 T30 what fails stops neither the rest nor the process' },
      memory: { reason: 'Core sees to it, in the same way for every backend.' },
      sqlite: { reason: 'Core sees to it, in the same way for every backend.' },
      later: { later: 'all' },
    },
    {
      id: 'T31',
      title: "A renewal resurrects an expired lock or renews a successor's",
      seenIn: 'redsync SetNXOnExtend, redis-semaphore #175',
      core: {
        test: 'G4 T31 an answer that comes after the deadline revives nothing, and the engine’s side is given back',
      },
      memory: { test: 'C12 T31 a keep-alive does not revive an expired session' },
      sqlite: { test: 'C12 T31 a keep-alive does not revive an expired session' },
      later: { later: 'all' },
    },
    {
      id: 'T32',
      title: 'TTL so short that renewal becomes a hot loop',
      seenIn: 'redlock-universal: 8,476 calls in 1 s',
      core: { test: 'T32 a short TTL does not make renewal a hot loop, also while the engine fails' },
      memory: { reason: 'Core sees to it, in the same way for every backend.' },
      sqlite: { reason: 'Core sees to it, in the same way for every backend.' },
      later: { later: 'all' },
    },
    {
      id: 'T33',
      title:
        'Black-holed connection: renewal failure alone must end the lease; no event from the socket will come',
      seenIn: 'Consul #18271',
      core: { test: 'G3 T2 T16 T33 a frozen engine: the lease is lost at its deadline, not later' },
      memory: {
        test: 'C197 G3 T33 without confirmed renewals a lease stops believing before the engine gives the name away',
      },
      sqlite: {
        test: 'C197 G3 T33 without confirmed renewals a lease stops believing before the engine gives the name away',
      },
      later: { later: 'all with a connection' },
    },
    {
      id: 'T34',
      title:
        'A held lock key is removed by an operator, by eviction or by FLUSHALL: noticed at the next keep-alive, reported as lost',
      core: { test: 'T34 dual-owner-suspected and lost, when the engine says another' },
      memory: {
        test: 'C145 G3 T34 a holder who was released by force learns it, with the reason, at its next keep-alive',
      },
      sqlite: {
        test: 'C145 G3 T34 a holder who was released by force learns it, with the reason, at its next keep-alive',
      },
      later: { later: 'redis, etcd, zookeeper, consul' },
    },
  ],
}
