/** Bugs of our own, with what shows them. */
export interface FoundBug {
  readonly what: string
  readonly where: string
  /** Seeds for `npm run sim -- --seed …` with the fix taken out, the scenario, or the test that turns red then. */
  readonly shownBy: string
  readonly state: string
}

export const found: readonly FoundBug[] = [
  {
    what:
      'The monotonic clocks of two processes differ by up to 265 ms: the offset between two readings of one clock was ' +
      'taken once at the start, and a process that was preempted while taking it stayed behind for ever. A lock was ' +
      'granted 7 ms before its holder’s confirmed prolongation + TTL (G1, G13).',
    where: 'base/clock.ts, systemClock',
    shownBy: 'the scenario lost-update with real processes on a busy machine',
    state: 'fixed: the machine-wide clock is read anew each time',
  },
  {
    what:
      'A waiter whose push is quicker than the answer to a keep-alive that lists it as waiting keeps the deadline of the ' +
      'heartbeat before, and may be lost within moments although the answer says `granted`. Safe, but a needless loss.',
    where: 'locker/keep-alive.ts, #apply',
    shownBy:
      'seeds 81, 98, 131, 133, 145, 203, 318 (the trace says "lost needlessly"; with the next fix taken out as well, ' +
      'which hides it)',
    state: 'fixed: the answer confirms the lease as well',
  },
  {
    what:
      'A lease that is granted when the last confirmed heartbeat is nearly a TTL old starts with almost no time, and is ' +
      'lost before its first renewal although its session has been prolonged meanwhile. Safe; 8 times in 400 seeds, ' +
      'after network trouble, a frozen engine or a stop.',
    where: 'locker/keeper.ts, adopt',
    shownBy: 'seeds 13, 19, 163, 237, 244, 307, 326, 385',
    state:
      'fixed where the engine answers: such a grant is confirmed by a keep-alive before it is handed out',
  },
  {
    what:
      'After a name was forgotten, a guard that had been touched by a newer reader let an older reader in, although a ' +
      'writer that it had seen came between the two: the floor was asked only as long as the name was not remembered ' +
      'again (G5). All guards had it, since they share the rule, and the model that they are compared with had it too.',
    where: 'guards/rule.ts, judgeByFloor; testing/guard-cases/modelling.ts',
    shownBy: 'D101, D102 and D140 of describeGuard; T41-reader-lifts-floor of the bank',
    state: 'fixed: with a shared fence the floor is remembered as if it were exclusive',
  },
  {
    what:
      'A harness that is killed while it launches a server leaves that server behind for ever: its watchdog had read the ' +
      'records before the server wrote its own, and the server did not mind that it could not be written down.',
    where: 'lab/servers/reaper.sh, launch.sh',
    shownBy: 'lab/servers/launch-race.test.ts',
    state:
      'fixed: the reaper takes the records away before it reads them, and who is not on record does not start',
  },
  {
    what:
      'A locker whose 32 sessions had each abandoned 10,000 attempts, and each carried a lease, refused every acquire until ' +
      'one of those leases was gone, and said that the engine did not answer (G10, G11).',
    where: 'locker/sessions.ts, #makeRoomFor',
    shownBy: 'locker/worn-out.test.ts',
    state: 'fixed: when there is no other, a worn-out session takes new leases',
  },
  {
    what:
      '`acquireAll` that lost a lease while it gathered the others began again without a pause: with `maxHoldMs: 1` and 400 ' +
      'names, 13,574 calls to the engine in 0.6 s.',
    where: 'locker/acquiring.ts, obtainAll',
    shownBy: 'locker/delays.test.ts (T54)',
    state: 'fixed: it pauses before each new round, longer each time',
  },
  {
    what:
      'A session that ended while one of its abandoned attempts waited to be tried again left that timer behind, for up to a ' +
      'third of the TTL (T29). Harmless: it kept no process alive and did nothing.',
    where: 'locker/unresolved.ts, #pause',
    shownBy: 'seeds 141, 225; locker/unresolved.test.ts',
    state: 'fixed: the end of the session cancels the timer',
  },
  {
    what: 'On ZooKeeper, of two who left the first data of a name at once (two calls of one holder, or two that share it), one was told that it held the name no more, and core ended its lease: both had found no data cell, and the second creation was refused (G13).',
    where: 'engines/zookeeper/locks/store.ts, putData',
    shownBy: 'C252 of describeBackend',
    state: 'fixed: when the cell is there by then, it is written again',
  },
  {
    what: 'On ZooKeeper, when a container was reaped and several processes that knew it joined the name at once, all but one were told that ZooKeeper could not be reached: a join guessed only once more whether the container is there, and another process had made it by then (G11).',
    where: 'engines/zookeeper/locks/store.ts, #create',
    shownBy:
      'engines/zookeeper/locks/queue.test.ts (a reaped container); G11-zookeeper-one-guess of the bank',
    state: 'fixed: it guesses a few times; what was refused was not applied',
  },
  {
    what: 'On Consul, a key of others below one name made every join of the same transaction fail as if nothing had been done. The claims stayed, and kept names closed that nobody had touched, until the next keep-alive (G11).',
    where: 'engines/consul/client/messages.ts, entryOf',
    shownBy: 'engines/consul/locks/queue.test.ts (a key that is not ours)',
    state: 'fixed: such a key closes its own name, and the claim of who wants that name is withdrawn',
  },
  {
    what: 'On ZooKeeper, each acquire that was refused because the epoch no longer fits into tokens left a claim until the next keep-alive.',
    where: 'engines/zookeeper/locks/store.ts, tokenOf',
    shownBy: 'engines/zookeeper/locks/epochs.test.ts',
    state: 'fixed: the claim is withdrawn before the error is told',
  },
  {
    what:
      'The proxy counted a quarantine from the arrival of the request. Paused before it forwarded, it sent the request on, gave it up, and ' +
      'forwarded a newer one at once, whose effect the older one then overwrote (T95).',
    where: 'engines/sqlite/guard/proxy/gate.ts',
    shownBy: 'proxy/gate.test.ts, T95; T95-quarantine-from-arrival of the bank',
    state: 'fixed: it counts from when the request is given up',
  },
  {
    what:
      'collect of the guard for objects deleted the head of another name that lies below the collected one (`conf` and ' +
      '`conf.d/10-default`), after which that name accepted older holders (G5).',
    where: 'guards/object/store-guard.ts, collect',
    shownBy: 'guards/object/collect.test.ts; G5-collected-head of the bank',
    state: 'fixed: it deletes keys of the form of its own data only',
  },
  {
    what:
      'On a Redis Cluster, an acquire of a name whose last token cannot be used (it is no number, or the largest) gave the key of that ' +
      'token a day to live. The mark that an operator has to put right would have gone by itself, and tokens would have gone on.',
    where: 'engines/redis/locks/scripts/short.ts',
    shownBy: 'redis/locks/short.test.ts (T108, tokens from source 2)',
    state: 'fixed: there the mark is read before it is written',
  },
  {
    what:
      'A session with advisory locks that had waited for 256 keys whose lock could not be shared got no hint for any other key as long ' +
      'as it lived, and each poll of each waiter asked a full lock table again (T81). Waiters polled instead.',
    where: 'engines/postgres/advisory/free-hints.ts',
    shownBy: 'postgres/advisory/free-hints.test.ts',
    state:
      'fixed: a key without waiters is forgotten whatever its state, and a refusal counts until the next keep-alive',
  },
]
