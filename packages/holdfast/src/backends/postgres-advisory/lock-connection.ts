/**
 * A connection of our own, in whose session the server keeps locks. It is the lease: the server ends it when nothing was
 * heard of it for a TTL (`idle_session_timeout`), and with it everything that it holds.
 *
 *   opening ──set up──▶ open ──close, or end──▶ ended        what it holds is given up first
 *   open ──event of the client | a statement fails | it runs in another session──▶ ended
 *
 * A statement that fails leaves it unknown what the session has, because advisory locks do not roll back. So whatever
 * fails ends the connection. Nobody's signal ends a statement: it goes on, and those behind it keep their order.
 */

import { BackendUnavailableError, InvalidArgumentError } from '../../base/errors.ts'
import { publicIdOf } from '../../base/ids.ts'
import {
  arrayLiteral,
  type DedicatedConnection,
  outcomeOf,
  type Parameter,
  type Row,
  sqlStateOf,
} from '../../clients/postgres/index.ts'
import { keyOfId } from './keys.ts'
import { type Links, NAME } from './links.ts'
import { type Answer, type Item, isGivingUp, operations, undoing } from './operations.ts'
import type { Statement } from './statements.ts'

export interface Opening {
  /** Secret, or random: whoever knows it could pretend that the connection lives. */
  readonly id: string
  readonly ttlMs: number
  /** Only the first connection of a session has a holder; the others belong to it. */
  readonly session?: { readonly holder: string; readonly channel: string }
  readonly signal: AbortSignal
}

/** What an operator wants back. */
export interface Forced {
  readonly id: string
  /** Missing if the operator's client is of layout 1. */
  readonly reason: string | undefined
}

export class LockConnection {
  /** The key of the lock by which others see that it lives. */
  readonly key: string
  readonly #links: Links
  readonly #connection: DedicatedConnection
  #ended = false
  #onEnd: (() => void) | undefined
  #closing: Promise<void> | undefined
  #closed: Promise<void> | undefined
  readonly #aimed = new Set<Promise<unknown>>()
  /** Settles when it does not wait in line any more; never rejects. */
  #waiting: Promise<unknown> | undefined

  private constructor(links: Links, connection: DedicatedConnection, key: string) {
    this.#links = links
    this.#connection = connection
    this.key = key
    connection.onEnd(() => this.#finish())
  }

  static async open(links: Links, { id, ttlMs, session, signal }: Opening): Promise<LockConnection> {
    links.countConnection()
    let dedicated: DedicatedConnection
    try {
      dedicated = await links.database.dedicated({ signal })
    } catch (error) {
      links.returnSlot()
      throw error
    }
    const opened = new LockConnection(links, dedicated, keyOfId(id))
    try {
      const rows = await (session === undefined
        ? opened.#run(links.sql.open, [opened.key, ttlMs])
        : opened.#run(links.sql.openSession, [
            opened.key,
            ttlMs,
            session.holder,
            session.channel,
            links.namespace,
            publicIdOf(id),
          ]))
      if (rows[0]?.[0] !== true)
        throw new InvalidArgumentError(
          'id',
          'is that of a session which has a connection already. No other can go on with it.',
        )
      dedicated.unref()
      if (signal.aborted) throw new BackendUnavailableError(NAME, 'the opening was cancelled', 'not-applied')
      return opened
    } catch (error) {
      await opened.close()
      throw error
    }
  }

  get ended(): boolean {
    return this.#ended
  }

  onEnd(listener: () => void): void {
    this.#onEnd = listener
  }

  /** All of it is done in this order, or the connection ends. */
  async apply(items: readonly Item[]): Promise<readonly Answer[]> {
    const { sql, namespace, loggedUpTo } = this.#links
    const rows = await this.#run(sql.apply, [
      this.key,
      namespace,
      String(loggedUpTo),
      arrayLiteral(items.map(({ op }) => op)),
      arrayLiteral(items.map(({ slot }) => slot)),
      arrayLiteral(items.map(({ key }) => key)),
      arrayLiteral(items.map(({ name }) => name)),
      arrayLiteral(items.map(({ id }) => id)),
      arrayLiteral(items.map(({ note }) => note)),
      arrayLiteral(items.map(({ owner }) => owner)),
    ])
    return rows.map(([text]) => this.#read(String(text)))
  }

  async applyOne(item: Item): Promise<Answer> {
    const { op, key, slot, id, name, note = null, owner = null } = item
    const { sql, namespace, loggedUpTo } = this.#links
    if (isGivingUp(op)) {
      const [row] = await (op === operations.giveUpExclusive
        ? this.#run(sql.unlock, [this.key, key])
        : this.#run(sql.giveUp, [this.key, slot, op, key]))
      return this.#read(String(row?.[0]))
    }
    try {
      if (op === operations.tryExclusive) {
        const [row] = await this.#send(sql.grab, [slot, this.key, key, name, id, note, owner])
        if (row !== undefined) return await this.#settled(String(row[0]))
      }
      const [row] = await this.#send(sql.try, [
        this.key,
        slot,
        op,
        key,
        namespace,
        name,
        id,
        note,
        owner,
        String(loggedUpTo),
      ])
      return this.#read(String(row?.[0]))
    } catch (error) {
      return await this.#undo(item, error)
    }
  }

  /** A token counts when the server's log up to it is on disk (T68). */
  async #settled(token: string): Promise<Answer> {
    if (BigInt(token) > this.#links.loggedUpTo) {
      const [row] = await this.#send(this.#links.sql.settle, [])
      this.#links.noteLogged(String(row?.[0]))
    }
    return { kind: 'granted', detail: token }
  }

  /** The server undid the statement, but not the lock that it may have got (T11). */
  async #undo({ op, key, slot }: Item, error: unknown): Promise<Answer> {
    const cause = error instanceof Error ? error.cause : undefined
    if (sqlStateOf(cause) === NO_SUCH_STATEMENT) throw this.#replaced()
    if (sqlStateOf(cause) === null || outcomeOf(cause) !== 'not-applied') {
      this.#end()
      throw error
    }
    const undo = undoing(op)
    if (undo !== null) await this.#run(this.#links.sql.giveUp, [this.key, slot, undo, key])
    return { kind: 'failed', detail: `${sqlStateOf(cause)} ${(cause as Error).message}` }
  }

  #read(text: string): Answer {
    const [kind, ...rest] = text.split(' ') as [Answer['kind'], ...string[]]
    if (kind === 'gone') throw this.#replaced()
    if (kind !== 'granted') return { kind, detail: rest.join(' ') }
    const [token = '0', logged] = rest
    if (logged !== undefined) this.#links.noteLogged(logged)
    return { kind, detail: token }
  }

  /** From its sending on, the server waits for a whole TTL again. */
  async keep(
    ttlMs: number,
    waitedFor: readonly string[] = [],
  ): Promise<{ readonly forced: readonly Forced[]; readonly turns: readonly string[] }> {
    const rows = (await this.#run(this.#links.sql.keep, [
      this.key,
      ttlMs,
      arrayLiteral(waitedFor),
    ])) as readonly [string, string | null][]
    if (rows[0]?.[0] !== 'alive') throw this.#replaced()
    const forced: Forced[] = []
    const turns: string[] = []
    for (const [at, [kind, data]] of rows.entries())
      if (kind === 'forced') forced.push({ id: String(data), reason: rows[at + 1]?.[1] ?? undefined })
      else if (kind === 'turn') turns.push(String(data))
    return { forced, turns }
  }

  /** Says for whom it is about to wait, so that others see it. False: as many waiters as the item allows are there. */
  async place(session: string, item: Item, mode: string, maxWaiters?: number): Promise<boolean> {
    const { sql, namespace } = this.#links
    const { key, id, name, note = null, owner = null } = item
    const wanted = [key, id, name, mode, note, owner, maxWaiters ?? null]
    const parameters = [this.key, session, namespace, ...wanted]
    const [row] = await this.#run(sql.place, parameters)
    if (row?.[0] === 'gone') throw this.#replaced()
    return row?.[0] === 'placed'
  }

  /** Waits in the server's own line. Null: the session that it waits for is over. */
  async take(session: string, item: Item, mode: string, ttlMs: number): Promise<string | null> {
    const { sql, loggedUpTo } = this.#links
    const taking = this.#send(sql.take, [
      this.key,
      session,
      item.key,
      item.id,
      mode,
      ttlMs,
      String(loggedUpTo),
    ])
    this.#waiting = taking.catch(() => {})
    let row: Row | undefined
    try {
      ;[row] = await taking
    } catch (error) {
      // It may have got the lock all the same (T11).
      void this.close()
      throw error
    } finally {
      this.#waiting = undefined
    }
    const [kind, token, nowKnown] = (row ?? []) as [string, string, string]
    if (kind === 'granted') {
      this.#links.noteLogged(nowKnown)
      return token
    }
    if (kind === 'gone') throw this.#replaced()
    this.#end()
    return null
  }

  /** While it waits in line. */
  get waiting(): Promise<unknown> | undefined {
    return this.#waiting
  }

  /** Cancels the waits of other connections. */
  async callOff(connections: readonly string[]): Promise<void> {
    await this.#run(this.#links.sql.callOff, [arrayLiteral(connections)])
  }

  async unforce(session: string, id: string): Promise<void> {
    await this.#run(this.#links.sql.unforce, [session, id])
  }

  /** Gives up all that it holds, and ends: afterwards the server has nothing of it, unless it cannot be reached. */
  close(): Promise<void> {
    this.#closing ??= this.#leave()
    return this.#closing
  }

  /** Without waiting for anything; the server finds out by itself. */
  drop(): void {
    this.#end()
  }

  async #leave(): Promise<void> {
    // If nobody hears it, the end of the connection says the same.
    if (!this.#ended) await this.#run(this.#links.sql.leave, [this.key]).catch(() => {})
    if (!this.#ended) this.#markEnded()
    await this.#closeConnection()
  }

  #closeConnection(): Promise<void> {
    this.#closed ??= Promise.allSettled(this.#aimed).then(() => this.#connection.close())
    return this.#closed
  }

  /**
   * A cancellation is on its way to the process that serves this connection. Until it has arrived, nobody else may get
   * that process: postgres.js would hand it to the next in its pool.
   */
  aimAt(cancelling: Promise<unknown>): void {
    const forget = () => void this.#aimed.delete(cancelling)
    this.#aimed.add(cancelling)
    cancelling.then(forget, forget)
  }

  async #run(statement: Statement, parameters: readonly Parameter[]): Promise<readonly Row[]> {
    try {
      return await this.#send(statement, parameters)
    } catch (error) {
      this.#end()
      throw error
    }
  }

  #send({ text, name }: Statement, parameters: readonly Parameter[]): Promise<readonly Row[]> {
    this.#links.statistics.statements++
    return this.#connection.query(text, parameters, name === undefined ? {} : { name })
  }

  #replaced(): BackendUnavailableError {
    this.#end()
    return new BackendUnavailableError(
      NAME,
      'the connection reached another session of the server than before: it was replaced, or there is a pooler in between, and what the session held is lost',
      'not-applied',
    )
  }

  #end(): void {
    if (this.#ended) return
    this.#finish()
    void this.#closeConnection()
  }

  #finish(): void {
    if (this.#ended) return
    this.#markEnded()
    this.#onEnd?.()
  }

  #markEnded(): void {
    this.#ended = true
    this.#links.returnSlot()
  }
}

/** A statement that was prepared on this connection is not known in the session that it reached. */
const NO_SUCH_STATEMENT = '26000'
