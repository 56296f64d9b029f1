import { engineDecides, type TrapSection } from '../../scripts/docs/trap-types.ts'

export const time: TrapSection = {
  title: 'Time',
  traps: [
    {
      id: 'T1',
      title: 'Validity counted from the reply instead of the send time',
      seenIn: 'etcd keep-alive, Consul renew, madelson',
      core: { test: 'G3 T1 an answer that comes late counts from when its request was sent' },
      backends: {
        test: 'C9 T1 G3 an opened session counts from the sending of the request, not from the answer',
      },
      redlock: { test: 'T1 a grant counts from before the asking, however long the answers take' },
    },
    {
      id: 'T2',
      title: 'Loss noticed late: a check that ticks every second, or only after twice the TTL',
      seenIn: 'etcd; npm etcd3: two leaders for 5 s at TTL 5 s',
      core: { test: 'G3 T2 T16 T33 a frozen engine: the lease is lost at its deadline, not later' },
      backends: 'as core',
    },
    {
      id: 'T3',
      title:
        'Wall clock used for a wait budget or a deadline. Step it +1 h: leases end early, waits are unaffected. −1 h: nothing changes. Monotonic stopped, wall moved on (suspend): leases end',
      seenIn: 'Redisson, Curator, all 21 npm lock packages read',
      core: { test: 'G3 T3 it is the larger of what the two clocks say' },
      backends: 'as core',
    },
    {
      id: 'T4',
      title:
        'Asked TTL believed instead of the granted one (etcd raises it to its minimum, Consul refuses under 10 s and expires at up to twice it)',
      core: { test: 'T4 they lie within what the engine can grant' },
      backends: { test: 'C6 T4 a session says which TTL was granted, which is at least what was asked for' },
      consul: { test: 'T4 expires between its TTL and twice its TTL, and a little' },
    },
    {
      id: 'T5',
      title: "The taker uses its own TTL instead of the holder's recorded one",
      seenIn: 'client-go',
      core: engineDecides,
      backends: { test: 'C19 T5 a holder keeps its name for its own TTL, whatever TTL the taker has' },
    },
    {
      id: 'T6',
      title: 'Lock handed out already expired: the quorum or the wait took longer than the TTL',
      seenIn:
        "redlock 5: −204 ms left; redis-semaphore; syncguard on Postgres: `NOW()` is the transaction's start, 800 ms expired",
      core: { test: 'T6 a grant that arrives after its own time is not handed out' },
      backends: 'as core',
      redlock: { test: 'T6 votes that come in when the TTL is over make no lease' },
      postgres: {
        test: 'T6 a call that waits for the lock of a name longer than its session lives gets nothing',
      },
      'postgres-advisory': {
        test: 'T6 T18 T20 G10 waiters in a black hole cost the living nothing',
      },
    },
    {
      id: 'T7',
      title:
        'Expiry counted from before the wait loop, so that a long wait gives a lease that is already dead',
      seenIn: 'redlock 5 beta',
      core: { test: 'T7 T65 a handed-over lease counts from the waiter’s last heartbeat, not from the push' },
      backends: {
        test: 'C86 T7 T65 after a long wait a grant counts from the last heartbeat, so that life is left in it',
      },
      redlock: { test: 'T7 T17 after a wait of many TTLs a lease has its whole TTL before it' },
      'postgres-advisory': { reason: 'waiters poll: no grant is older than the statement that made it' },
    },
    {
      id: 'T8',
      title: 'A blocked event loop: timers fire late, so belief must be evaluated at every read',
      core: { test: 'T8 paused, when our own timer came late' },
      backends: 'as core',
    },
    {
      id: 'T9',
      title:
        "The server's clock is stepped (Redis: wall-clock expiry): early expiry, two believers; tokens must still increase and the guard must refuse the older",
      core: { reason: "the engine's clock is not core's: belief counts on the holder's own two clocks" },
      backends: {
        test: 'T9 G5 when the server’s clock is stepped there may be two believers, and the guard refuses the older',
      },
      memory: { reason: 'expiry is judged on the monotonic clock, which cannot be set' },
      sqlite: { reason: "expiry is judged on the machine's monotonic clock, which cannot be set" },
      redlock: {
        test: 'T9 when the clocks of a majority are set forward there are two believers, and the older learns it at its next renewal',
      },
      etcd: { reason: 'leases count on the monotonic clock of the leader, which cannot be set' },
      zookeeper: {
        test: 'T9 the wall clocks of all members are stepped: sessions live on, tokens go on',
      },
      consul: { reason: 'sessions count on the monotonic clock of the leader, which cannot be set' },
      later: { reason: 'only Redis can have it' },
    },
  ],
}
