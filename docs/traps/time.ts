import { open, type TrapSection } from '../../scripts/docs/trap-types.ts'

export const time: TrapSection = {
  title: 'Time',
  traps: [
    {
      id: 'T1',
      title: 'Validity counted from the reply instead of the send time',
      seenIn: 'etcd keep-alive, Consul renew, madelson',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T2',
      title: 'Loss noticed late: a check that ticks every second, or only after twice the TTL',
      seenIn: 'etcd; npm etcd3: two leaders for 5 s at TTL 5 s',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T3',
      title:
        'Wall clock used for a wait budget or a deadline. Step it +1 h: leases end early, waits are unaffected. −1 h: nothing changes. Monotonic stopped, wall moved on (suspend): leases end',
      seenIn: 'Redisson, Curator, all 21 npm lock packages read',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T4',
      title:
        'Asked TTL believed instead of the granted one (etcd raises it to its minimum, Consul refuses under 10 s and expires at up to twice it)',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'etcd, consul' },
    },
    {
      id: 'T5',
      title: "The taker uses its own TTL instead of the holder's recorded one",
      seenIn: 'client-go',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T6',
      title: 'Lock handed out already expired: the quorum or the wait took longer than the TTL',
      seenIn:
        "redlock 5: −204 ms left; redis-semaphore; syncguard on Postgres: `NOW()` is the transaction's start, 800 ms expired",
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T7',
      title:
        'Expiry counted from before the wait loop, so that a long wait gives a lease that is already dead',
      seenIn: 'redlock 5 beta',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T8',
      title: 'A blocked event loop: timers fire late, so belief must be evaluated at every read',
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'all' },
    },
    {
      id: 'T9',
      title:
        "The server's clock is stepped (Redis: wall-clock expiry): early expiry, two believers; tokens must still increase and the guard must refuse the older",
      core: open,
      memory: open,
      sqlite: open,
      later: { later: 'redis' },
    },
  ],
}
