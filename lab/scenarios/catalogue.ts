/** All scenarios, by the name that a person types. */
import { clockJumpOneScenario, clockJumpScenario } from './clock-jump.ts'
import { failoverScenario } from './failover.ts'
import { freezeScenario } from './freeze.ts'
import { frozenMemberScenario } from './frozen-member.ts'
import { fullScenario } from './full.ts'
import { lostUpdateScenario } from './lost-update.ts'
import { partitionScenario } from './partition.ts'
import { pauseScenario } from './pause.ts'
import { poolerScenario } from './pooler.ts'
import type { Scenario } from './scenario.ts'

export interface ScenarioOptions {
  readonly seconds?: number
  /** Only lost-update leaves something to chance. */
  readonly seed?: number
}

export interface CatalogueEntry {
  readonly about: string
  make(options: ScenarioOptions): Scenario
}

export const catalogue: { readonly [name: string]: CatalogueEntry } = {
  pause: {
    about: 'a client is stopped between its read and its write; another takes over; the first goes on',
    make: pauseScenario,
  },
  'lost-update': {
    about: '5 clients, TTL 2 s: read, sleep up to 2 s, write; one is stopped every 5 s (default 30 s)',
    make: lostUpdateScenario,
  },
  'clock-jump': {
    about: 'the clock of the servers that decide is set ahead while a lease is held: two believe at once',
    make: clockJumpScenario,
  },
  'clock-jump-one': {
    about: 'the clock of one server is set ahead, which two majorities share: two believe at once',
    make: clockJumpOneScenario,
  },
  failover: {
    about: 'the primary dies before its replica has the grant, and the replica is promoted',
    make: failoverScenario,
  },
  partition: {
    about: 'a client is cut off from the engine for longer than its lease lasts, in three ways',
    make: partitionScenario,
  },
  freeze: {
    about: 'the servers stand still for longer than a lease lasts, and go on',
    make: freezeScenario,
  },
  'frozen-member': {
    about: 'a member stands still to which a waiter and a watcher are connected, and the holder is stopped',
    make: frozenMemberScenario,
  },
  full: {
    about: 'the engine is full while a lease ends: nobody gets the name before there is space again',
    make: fullScenario,
  },
  pooler: {
    about: 'pause, through a pooler that shares the sessions of the server between its clients',
    make: poolerScenario,
  },
}
