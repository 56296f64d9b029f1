import { open, type TrapSection } from '../../scripts/docs/trap-types.ts'

export const renewing: TrapSection = {
  title: 'Renewing',
  traps: [
    {
      id: 'T29',
      title: 'Cancel-before-schedule race: a renewal outlives the release and the lock is immortal',
      seenIn: 'Redisson #7272',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T30',
      title:
        'One thrown error ends the renewal loop silently, or becomes an unhandled rejection that kills the process',
      seenIn: 'redis-semaphore #199, node-redisson, ShedLock',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T31',
      title: "A renewal resurrects an expired lock or renews a successor's",
      seenIn: 'redsync SetNXOnExtend, redis-semaphore #175',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T32',
      title: 'TTL so short that renewal becomes a hot loop',
      seenIn: 'redlock-universal: 8,476 calls in 1 s',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T33',
      title:
        'Black-holed connection: renewal failure alone must end the lease; no event from the socket will come',
      seenIn: 'Consul #18271',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all with a connection' },
    },
    {
      id: 'T34',
      title:
        'A held lock key is removed by an operator, by eviction or by FLUSHALL: noticed at the next keep-alive, reported as lost',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'redis, etcd, zookeeper, consul' },
    },
  ],
}
