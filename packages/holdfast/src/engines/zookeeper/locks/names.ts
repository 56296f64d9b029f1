/**
 * The names of a namespace at ZooKeeper, as operators see them. A read begins with a write: a member that is cut off from the others goes on
 * answering reads and syncs, but no commit (T91, deposed leaders that answer). Writes are made on condition of what was read.
 */
import { unescapeName } from '../../../base/names.ts'
import { pageOf } from '../../../kit/backend-kit.ts'
import type { DataRecord, MarkRecord } from '../../../kit/claim-records.ts'
import type { NameStore } from '../../../kit/conditional-store.ts'
import { StoredName } from '../../../kit/stored-name.ts'
import type { Call, InspectCall, Page, PageRequest, SessionState } from '../../../spi.ts'
import type { Part, Session } from '../client/index.ts'
import { type Connection, type Reading, refused } from './connection.ts'
import type { ClaimPath } from './keys.ts'
import {
  foundClaim,
  parse,
  type StoredCapacity,
  type StoredSession,
  seenClaim,
  type ZooKeeperClaim,
} from './records.ts'

export class ZooKeeperNames implements NameStore<ZooKeeperClaim> {
  readonly #connection: Connection

  constructor(connection: Connection) {
    this.#connection = connection
  }

  async read(name: string, call: InspectCall): Promise<StoredName<ZooKeeperClaim>> {
    return this.#read(name, await this.#connection.reading(call), call)
  }

  async list(prefix: string, page: PageRequest, call: Call) {
    const reading = await this.#connection.reading(call)
    const children = await this.#childrenOf(this.#connection.keys.names, reading, call)
    const all = children.map((child) => unescapeName(child)).filter((name) => name.startsWith(prefix))
    const { items, next } = pageOf(all, page, (name) => name)
    const read = async (name: string) => ({ name, stored: await this.#read(name, reading, call) })
    return { items: await Promise.all(items.map(read)), next }
  }

  async sessions(page: PageRequest, call: Call): Promise<Page<SessionState>> {
    const reading = await this.#connection.reading(call)
    const { sessions } = this.#connection.keys
    const { items, next } = pageOf(await this.#childrenOf(sessions, reading, call), page, (child) => child)
    const read = async (child: string): Promise<SessionState[]> => {
      const reply = await reading.session.ask({ op: 'getData', path: `${sessions}/${child}` }, call)
      if (!reply.ok) return []
      const { id, holder, ttlMs } = parse<StoredSession>(reply.data)
      return [{ id, holder, ttlMs }]
    }
    return { items: (await Promise.all(items.map(read))).flat(), next }
  }

  /** It does not write the container, so watchers do not take it for a release. */
  async endClaim({ key, version, attempt }: ZooKeeperClaim, mark: MarkRecord, call: Call): Promise<boolean> {
    const path = this.#connection.keys.attempt(attempt)
    return this.#write(
      [
        { op: 'delete', path: key, version },
        { op: 'setData', path, data: JSON.stringify(mark) },
      ],
      call,
    )
  }

  /**
   * Every join writes the container, so its version tells whether another claim has come. It is written here as well, for whoever deletes a
   * capacity that is void. Last, so that watchers do not take it for a release.
   */
  async changeCapacity(name: string, seen: StoredName<ZooKeeperClaim>, capacity: number, call: Call) {
    const { keys } = this.#connection
    const path = keys.of(name, 'capacity')
    const stored: StoredCapacity = { capacity, before: Number(seen.claims.at(-1)?.order ?? 0n) + 1 }
    const version = seen.versions?.get('capacity')
    const write = { path, data: JSON.stringify(stored) }
    const part: Part =
      version === undefined
        ? { op: 'create', ...write }
        : { op: 'setData', ...write, version: Number(version) }
    const { path: container, version: same } = check(keys.name(name), seen, 'name')
    return this.#write([part, { op: 'setData', path: container, data: '', version: same }], call)
  }

  async deleteData(name: string, seen: StoredName<ZooKeeperClaim>, call: Call): Promise<boolean> {
    const { keys } = this.#connection
    if (seen.claims.length > 0) return false
    const path = keys.of(name, 'data')
    const cell = check(path, seen, 'data')
    return this.#write([check(keys.name(name), seen, 'name'), cell, { op: 'delete', path }], call)
  }

  async #childrenOf(path: string, { session }: Reading, call: Call): Promise<readonly string[]> {
    const reply = await session.ask({ op: 'getChildren', path }, call)
    if (!reply.ok) throw refused(reply.code)
    return reply.children
  }

  /**
   * The names of the children, then their data, then the names again. A claim counts if it was there both times, so no two are shown of
   * which one has ended before the other was granted.
   */
  async #read(
    name: string,
    { session, leaderTime }: Reading,
    call: InspectCall,
  ): Promise<StoredName<ZooKeeperClaim>> {
    const { keys } = this.#connection
    const list = { op: 'getChildren', path: keys.name(name) } as const
    const first = await session.ask(list, call)
    if (!first.ok && first.code !== 'no-node') throw refused(first.code)
    if (!first.ok) return new StoredName<ZooKeeperClaim>({ version: first.zxid, claims: [] })
    const { children, zxid: version, stat } = first
    const paths = keys.claimsIn(name, children)
    const seen = paths.map(seenClaim)
    const found = { name, children, version: stat.version, leaderTime }
    const others = await this.#connection.readOthers(session, found, seen, call)
    const facts = { ...others, version, derivesGrants: true }
    const holders = call.holdersOnly ? new StoredName({ ...facts, claims: seen }).holders : seen
    const wanted = new Set(holders.map(({ key }) => key))
    const [claims, data, last] = await Promise.all([
      Promise.all(paths.filter(({ key }) => wanted.has(key)).map((path) => this.#find(session, path, call))),
      children.includes('data')
        ? session.ask({ op: 'getData', path: keys.of(name, 'data') }, call)
        : undefined,
      session.ask(list, call),
    ])
    const left = new Set(last.ok ? last.children.map((child) => keys.of(name, child)) : [])
    const versions = new Map([...(others.versions ?? []), ['name', BigInt(stat.version)]])
    if (data?.ok) versions.set('data', BigInt(data.stat.version))
    return new StoredName<ZooKeeperClaim>({
      ...facts,
      claims: claims.filter((claim) => claim !== undefined).filter(({ key }) => left.has(key)),
      versions,
      ...(data?.ok && { data: parse<DataRecord>(data.data) }),
    })
  }

  async #find(session: Session, path: ClaimPath, call: Call): Promise<ZooKeeperClaim | undefined> {
    const reply = await session.ask({ op: 'getData', path: path.key }, call)
    return reply.ok ? foundClaim(path, reply.data, reply.stat) : undefined
  }

  async #write(parts: readonly Part[], call: Call): Promise<boolean> {
    const { client, lifetime } = this.#connection
    lifetime.begin(call)
    const reply = await (await client.shared(call)).ask({ op: 'multi', parts }, call)
    if (!reply.ok && reply.code === 'session-gone') throw refused(reply.code)
    return reply.ok
  }
}

/** The node is as it was read. */
function check(path: string, { versions }: StoredName<ZooKeeperClaim>, what: 'name' | 'data') {
  return { op: 'check', path, version: Number(versions?.get(what) ?? NEVER) } as const
}

/** No node has it. */
const NEVER = 2 ** 31 - 1
