/** The names of a namespace at Consul, as operators see them. Each read is linearizable, each write on condition of what was read. */
import { UnsupportedError } from '../../../base/errors.ts'
import { compareNames, escapeName } from '../../../base/names.ts'
import { pageOf } from '../../../kit/backend-kit.ts'
import type { MarkRecord, SessionRecord } from '../../../kit/claim-records.ts'
import type { NameStore } from '../../../kit/conditional-store.ts'
import type { StoredName } from '../../../kit/stored-name.ts'
import type { Call, PageRequest, SessionState } from '../../../spi.ts'
import * as consul from '../client/index.ts'
import type { Connection } from './connection.ts'
import { type ConsulClaim, nameIn } from './records.ts'

/** Sessions whose capacities fit into one transaction. */
const MAX_SESSIONS = 60

export class ConsulNames implements NameStore<ConsulClaim> {
  readonly #connection: Connection

  constructor(connection: Connection) {
    this.#connection = connection
  }

  async read(name: string, call: Call): Promise<StoredName<ConsulClaim>> {
    const { keys } = this.#connection
    return nameIn(keys, await this.#connection.readNames([keys.name(name)], call))
  }

  /** Consul lists all names below the prefix at once. In the order of their bytes, which is not that of the keys. */
  async list(prefix: string, { cursor = '', limit }: PageRequest, call: Call) {
    const { client, keys, lifetime } = this.#connection
    lifetime.begin(call)
    const all = `${keys.names}${escapeName(prefix)}`
    const groups = await consul.keysBelow(client, all, true, call)
    if (groups.length === 0) await this.#connection.requireRights([all], call)
    const names = groups
      .flatMap((group) => keys.nameOfGroup(group) ?? [])
      .filter((name) => compareNames(name, cursor) > 0)
    const listed = names.sort(compareNames).slice(0, Math.min(limit, consul.MAX_OPERATIONS))
    const wanted = listed.map((name) => keys.name(name))
    const found = Map.groupBy(await this.#connection.readNames(wanted, call), ({ key }) => keys.groupOf(key))
    const items = listed.map((name) => ({ name, stored: nameIn(keys, found.get(keys.name(name)) ?? []) }))
    return { items, next: listed.length < names.length ? (listed.at(-1) ?? null) : null }
  }

  async sessions(page: PageRequest, call: Call) {
    const { entries } = await this.#connection.read([this.#connection.keys.sessions], call)
    const ours = entries.filter(({ isForeign }) => !isForeign)
    const states = ours.map(({ value }): SessionState => {
      const { id, holder, ttlMs } = JSON.parse(value) as SessionRecord
      return { id, holder, ttlMs }
    })
    return pageOf(states, page, ({ id }) => id)
  }

  async endClaim({ key, revision, session, name, attempt }: ConsulClaim, mark: MarkRecord, call: Call) {
    const { client, keys, lifetime } = this.#connection
    lifetime.begin(call)
    const operations = [
      consul.unchanged(key, revision),
      consul.remove(key),
      consul.remove(keys.of(name, 'delay', attempt)),
      consul.lock(keys.attempt(session, attempt), JSON.stringify(mark), session),
    ]
    return (await client.transact(operations, call)).refused === undefined
  }

  /** The new capacity goes with every session that has claims, so it lasts as long as the last of them. */
  changeCapacity(name: string, seen: StoredName<ConsulClaim>, capacity: number, call: Call) {
    const { keys } = this.#connection
    const sessions = [...new Set(seen.claims.map(({ session }) => session))]
    if (sessions.length > MAX_SESSIONS)
      throw new UnsupportedError(
        `Consul cannot resize a semaphore while more than ${MAX_SESSIONS} sessions hold or wait for it.`,
      )
    const writes = sessions.map((session) =>
      consul.lock(keys.of(name, 'capacity', session), String(capacity), session),
    )
    return this.#alone(name, seen, writes, call)
  }

  async deleteData(name: string, seen: StoredName<ConsulClaim>, call: Call) {
    if (seen.claims.length > 0) return false
    return this.#alone(name, seen, [consul.remove(this.#connection.keys.of(name, 'data'))], call)
  }

  /**
   * Writes if the name is as it was seen. Consul cannot compare that nothing new has come. So the operator first locks a key of the name,
   * for a session of its own: while this key is there nothing is granted, and it is read who came before. If the operator dies in
   * between, the name opens again when this session ends.
   */
  async #alone(
    name: string,
    seen: StoredName<ConsulClaim>,
    writes: readonly consul.Operation[],
    call: Call,
  ): Promise<boolean> {
    const { client, keys, minTtlMs, lifetime } = this.#connection
    lifetime.begin(call)
    const operator = keys.of(name, 'operator')
    const session = await consul.createSession(client, { ttlMs: minTtlMs, behavior: 'delete' }, call)
    try {
      const closing = [
        consul.absent(operator),
        consul.lock(operator, '', session),
        consul.tree(keys.name(name)),
      ]
      const { entries, refused } = await client.transact(closing, call)
      if (refused !== undefined || !isSame(seen, nameIn(keys, consul.byKey(entries)))) return false
      const closed = [consul.lockedBy(operator, session), ...writes, consul.remove(operator)]
      return (await client.transact(closed, call)).refused === undefined
    } finally {
      this.#connection.end(session)
    }
  }
}

/** The claims, capacities and data are those that were seen. */
function isSame(seen: StoredName<ConsulClaim>, now: StoredName<ConsulClaim>): boolean {
  const written = ({ claims, versions }: StoredName<ConsulClaim>) =>
    [...claims.map(({ key, revision }) => `${key} ${revision}`), ...(versions ?? [])].sort().join('\n')
  return written(seen) === written(now)
}
