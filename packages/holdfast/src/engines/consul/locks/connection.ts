/** State that backend and sessions share: the client, the batches of transactions, the reads of queues, and the polls. */
import type { Clock } from '../../../base/clock.ts'
import { BackendUnavailableError, type CallOutcome, UnsupportedError } from '../../../base/errors.ts'
import type { Random } from '../../../base/ids.ts'
import { ignore } from '../../../base/ignore.ts'
import { Lane } from '../../../kit/lane.ts'
import { Lifetime } from '../../../kit/lifetime.ts'
import { PolledWatches } from '../../../kit/polled-watches.ts'
import type { Call } from '../../../spi.ts'
import * as consul from '../client/index.ts'
import { Keys, MAX_BATCH } from './keys.ts'
import { tombstonesIn } from './records.ts'

export const BACKEND = 'consul'

/**
 * A transaction for one name, of at most four operations if it shall leave with others. `build` is told its position, which is part of
 * the token. It is asked again while its call lasts (T98, dropped proposals). That does no harm, however late a copy lands:
 *
 *   join       finds the attempt's key, and what has become of the claim. A copy that lands when the attempt is over makes a claim that
 *              is unlisted in the next keep-alive.
 *   confirm    compares the index of its key. So a second copy does nothing, and reads the grant of the first.
 *   leave, abandon, release   compare the index or the session of their key. If a second copy of a release finds nothing to release, the
 *              outcome is unknown (T13, repeated releases).
 */
interface Statement {
  readonly name: string
  /** Statements with the same one do not leave together. */
  readonly key: string
  readonly build: (position: number) => readonly consul.Operation[]
  /** As it is at position 0, where most statements are. */
  readonly first: readonly consul.Operation[]
}

/** A transaction that was applied, with the entries that it read, or the reason why it was not. */
export type Committed = {
  /** It was sent more than once. The answer is that of any copy, and others may still land. */
  readonly isRepeated: boolean
  readonly position: number
} & ({ readonly entries: readonly consul.Entry[]; readonly refused?: never } | Refused)

interface Refused {
  readonly entries?: never
  readonly refused: { readonly index: number; readonly what: string }
}

export class Connection {
  readonly client: consul.ConsulClient
  readonly clock: Clock
  readonly random: Random
  readonly keys: Keys
  readonly lifetime: Lifetime
  readonly watches: PolledWatches<readonly consul.Entry[]>
  /** The shortest TTL of a session. */
  minTtlMs = 10_000
  readonly #lane: Lane<Statement, Committed>
  readonly #looks: Lane<string, readonly consul.Entry[]>

  constructor(client: consul.ConsulClient, namespace: string, clock: Clock, random: Random) {
    this.client = client
    this.clock = clock
    this.random = random
    this.keys = new Keys(namespace)
    this.lifetime = new Lifetime(BACKEND, clock)
    this.watches = new PolledWatches({
      clock,
      maxGroups: 8,
      groupOf: (key) => this.keys.groupOf(key),
      poll: (group, index, signal) =>
        group === null
          ? consul.pollKeys(client, this.keys.names, index, signal)
          : consul.pollTree(client, group, index, signal),
    })
    this.#lane = new Lane({
      backend: BACKEND,
      clock,
      maxBatch: MAX_BATCH,
      maxInFlight: 6,
      freeInFlight: 2,
      minFurther: MAX_BATCH,
      minSplit: Number.POSITIVE_INFINITY,
      keyOf: ({ key }) => key,
      send: (statements, call) => this.#send(statements, call),
    })
    this.#looks = new Lane({
      backend: BACKEND,
      clock,
      maxBatch: Number.POSITIVE_INFINITY,
      send: (names, call) => this.#lookAt(names, call),
    })
  }

  /**
   * One attempt. What leaves at the same moment is one transaction. `key`: the attempt of a join. Many joins of one name leave together, and
   * their answers share one view of the name.
   */
  commit(name: string, build: Statement['build'], call: Call, key = name): Promise<Committed> {
    this.lifetime.begin(call)
    const statement = { name, key, build, first: build(0) }
    const isShort = statement.first.length <= consul.MAX_OPERATIONS / MAX_BATCH
    return isShort ? this.#lane.ask(statement, call) : this.#alone(statement, false, call)
  }

  /** Everything of a name. Reads of one moment are one. */
  look(name: string, call: Call): Promise<readonly consul.Entry[]> {
    this.lifetime.begin(call)
    return this.#looks.ask(name, call)
  }

  /** Reads all keys below these prefixes, linearizably, in as many transactions as it takes. `member`: the server that answered the first. */
  async read(prefixes: readonly string[], call: Call, reading = consul.tree) {
    this.lifetime.begin(call)
    const answers: Awaited<ReturnType<consul.ConsulClient['transact']>>[] = []
    for (let at = 0; at < prefixes.length || at === 0; at += consul.MAX_OPERATIONS) {
      const trees = prefixes.slice(at, at + consul.MAX_OPERATIONS).map((prefix) => reading(prefix))
      answers.push(await this.client.transact(trees, call, { isConsistent: true }))
    }
    const [{ member }] = answers as [(typeof answers)[0]]
    return { entries: answers.flatMap(({ entries = [] }) => entries), member }
  }

  /**
   * Rejects if the token may not read one of these keys. Consul silently leaves it out of an answer, so it seems not to exist (T56, a no that
   * is none). So each is compared: Consul refuses to compare a missing key, and gives another reason if the right to read it is missing.
   */
  async requireRights(missing: readonly string[], call: Call): Promise<void> {
    if (missing.length > 0) await this.read(missing, call, (key) => consul.unchanged(key, 0n))
  }

  /**
   * Names, without tombstones whose lock-delay is over. To find out, each is locked: if the delay is over that succeeds, and the same
   * transaction deletes the tombstone. The session that a lock needs is ended at once.
   */
  async readNames(groups: readonly string[], call: Call): Promise<readonly consul.Entry[]> {
    if (groups.length === 0) return []
    const { entries } = await this.read(groups, call)
    const found = new Set(entries.map(({ key }) => this.keys.groupOf(key)))
    await this.requireRights(
      groups.filter((group) => !found.has(group)),
      call,
    )
    const unlocked = tombstonesIn(this.keys, entries).filter(({ session }) => session === undefined)
    if (unlocked.length === 0) return entries
    const session = await consul.createSession(
      this.client,
      { ttlMs: this.minTtlMs, behavior: 'delete' },
      call,
    )
    try {
      const taking = unlocked.map(async ({ key }) => {
        const { refused } = await this.client.transact(takingAway(key, session), call)
        return refused === undefined ? [key] : []
      })
      const gone = new Set((await Promise.all(taking)).flat())
      return entries.filter(({ key }) => !gone.has(key))
    } finally {
      this.end(session)
    }
  }

  /** Ends a session of Consul. Nobody waits for it, because it ends by itself if nobody renews it. */
  end(...sessions: readonly (string | undefined)[]): void {
    for (const id of sessions)
      if (id !== undefined)
        this.lifetime.inBackground((call) => consul.destroySession(this.client, id, call)).catch(ignore)
  }

  close(): void {
    if (this.lifetime.isOver) return
    this.lifetime.end()
    this.#lane.close()
    this.#looks.close()
    this.watches.close()
    this.client.close()
  }

  /** One that is refused refuses all, so that nothing was applied, and then each is sent alone. */
  async #send(statements: readonly Statement[], call: Call): Promise<(Committed | Error)[]> {
    let isRepeated = false
    const onAgain = () => {
      isRepeated = true
    }
    const operations = statements.flatMap(({ build, first }, position) =>
      position === 0 ? first : build(position),
    )
    const { entries, refused } = await this.client.transact(readingLast(operations), call, {
      onAgain,
    })
    if (refused === undefined) {
      const byName = Map.groupBy(entries, ({ key }) => this.keys.groupOf(key))
      const found = new Map([...byName].map(([group, own]) => [group, consul.byKey(own)]))
      return statements.map(({ name }, position) => {
        return { entries: found.get(this.keys.name(name)) ?? [], isRepeated, position }
      })
    }
    const [only, ...others] = statements
    if (only !== undefined && others.length === 0) return [{ refused, isRepeated, position: 0 }]
    const alone = statements.map((each) => this.#alone(each, isRepeated, call).catch((error) => error))
    return Promise.all(alone)
  }

  async #alone(statement: Statement, wasSent: boolean, call: Call): Promise<Committed> {
    const [committed] = await this.#send([statement], call)
    if (committed instanceof Error || committed === undefined) throw committed
    return { ...committed, isRepeated: wasSent || committed.isRepeated }
  }

  async #lookAt(names: readonly string[], call: Call): Promise<(readonly consul.Entry[])[]> {
    const groups = [...new Set(names)].map((name) => this.keys.name(name))
    const byName = Map.groupBy((await this.read(groups, call)).entries, ({ key }) => this.keys.groupOf(key))
    return names.map((name) => byName.get(this.keys.name(name)) ?? [])
  }
}

/** Each read once, after all writes: so it sees whatever the transaction has done, and the values that answers of writes lack. */
function readingLast(operations: readonly consul.Operation[]): readonly consul.Operation[] {
  const isTree = ({ KV }: consul.Operation) => KV.Verb === 'get-tree'
  const trees = new Map(operations.filter(isTree).map((operation) => [operation.KV.Key, operation]))
  return [...operations.filter((operation) => !isTree(operation)), ...trees.values()]
}

/** Refused until the lock-delay is over. Then the key is gone. */
export function takingAway(tombstone: string, session: string): consul.Operation[] {
  return [consul.lock(tombstone, '', session), consul.remove(tombstone)]
}

export function unavailable(what: string, outcome: CallOutcome): BackendUnavailableError {
  return new BackendUnavailableError(BACKEND, what, outcome)
}

/** Somebody else has written below our prefix. */
export function foreign(key: string): UnsupportedError {
  return new UnsupportedError(
    `Consul has the key ${key}, which is not Holdfast's. Delete it, or choose another namespace.`,
  )
}

/** Consul leaves out of an answer what the token may not read. */
export function unreadable(key: string): UnsupportedError {
  return new UnsupportedError(
    `Consul does not show ${key}, which was just written. The token needs key_prefix "holdfast/1/<namespace>/" with policy "write".`,
  )
}
