/** The SPI over the advisory locks of a PostgreSQL database. */
import { type Clock, instantOf } from '../../core/clock.ts'
import { UnsupportedError } from '../../core/errors.ts'
import type { Random } from '../../core/ids.ts'
import type {
  Backend,
  BackendInfo,
  BackendSession,
  Call,
  NameState,
  OperatorCall,
  SessionHandle,
  SessionRequest,
} from '../../spi.ts'
import { forceRelease } from './forcing.ts'
import { unlessCalledOff } from './lane.ts'
import { type Links, NAME, type Statistics } from './links.ts'
import { LockConnection } from './lock-connection.ts'
import { statesOf } from './looking.ts'
import { AdvisorySession } from './session.ts'

export class PostgresAdvisoryBackend implements Backend<'fenced'> {
  readonly info: BackendInfo<'fenced'>
  readonly clock: Clock
  readonly random: Random
  readonly #links: Links
  readonly #sessions = new Map<string, Promise<AdvisorySession>>()
  #closing: Promise<void> | undefined

  constructor(links: Links, info: BackendInfo<'fenced'>) {
    this.info = info
    this.clock = links.clock
    this.random = links.random
    this.#links = links
  }

  /** What it has done so far, for tests and measurements. */
  get statistics(): Readonly<Statistics> {
    return this.#links.statistics
  }

  async openSession(request: SessionRequest, call: Call): Promise<BackendSession<'fenced'>> {
    this.#links.check(call)
    const known = this.#sessions.get(request.id)
    if (known !== undefined) return unlessCalledOff(known, call.signal)
    const opening = this.#open(request, call)
    this.#sessions.set(request.id, opening)
    opening.catch(() => this.#sessions.delete(request.id))
    return opening
  }

  async attachSession(_handle: SessionHandle, call: Call): Promise<never> {
    this.#links.check(call)
    throw new UnsupportedError(
      `${NAME}: a session lives in a connection, and no other process can go on with it. Use holdfast/postgres for that.`,
    )
  }

  async inspect(name: string, call: Call): Promise<NameState | null> {
    return (await this.#look(name, 'name', call))[0] ?? null
  }

  list(prefix: string, call: Call): Promise<readonly NameState[]> {
    return this.#look(prefix, 'prefix', call)
  }

  async check(
    holder: { readonly name: string; readonly id: string; readonly token: bigint },
    call: Call,
  ): Promise<boolean> {
    const state = await this.inspect(holder.name, call)
    return state?.holders.some(({ id, token }) => id === holder.id && token === holder.token) ?? false
  }

  /** The reason is for core's events; the database does not keep it. */
  async forceRelease(
    name: string,
    ids: readonly string[],
    _reason: string,
    call: OperatorCall,
  ): Promise<number> {
    this.#links.check(call)
    return forceRelease(this.#links, name, ids, call)
  }

  async resize(_name: string, _capacity: unknown, call: OperatorCall): Promise<never> {
    this.#links.check(call)
    throw new UnsupportedError(`${NAME} has no semaphores, so there is no capacity to change.`)
  }

  /** There is no data. */
  async forget(name: string, _data: string, call: OperatorCall): Promise<'in-use' | 'changed'> {
    return (await this.inspect(name, call)) === null ? 'changed' : 'in-use'
  }

  /** The locks are in its connections, so what it held is free afterwards. */
  [Symbol.asyncDispose](): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#links.stop()
    const { signal } = new AbortController()
    const sessions = await Promise.allSettled(this.#sessions.values())
    await Promise.allSettled(
      sessions.map((each) => (each.status === 'fulfilled' ? each.value.end(signal) : undefined)),
    )
    await this.#links.close()
  }

  async #open(request: SessionRequest, { signal }: Call): Promise<AdvisorySession> {
    const { id, holder } = request
    const ttlMs = Math.ceil(request.ttlMs)
    const { ears } = this.#links
    const heard = ears.ready()
    const since = instantOf(this.clock)
    const session = { holder, channel: ears.channel }
    const main = await LockConnection.open(this.#links, { id, ttlMs, session, signal })
    await unlessCalledOff(heard, signal).catch(async (error: unknown) => {
      await main.close()
      throw error
    })
    const onEnd = () => void this.#sessions.delete(id)
    return new AdvisorySession(this.#links, main, { id, ttlMs, holder, since, onEnd })
  }

  async #look(text: string, kind: 'name' | 'prefix', call: Call): Promise<NameState[]> {
    this.#links.check(call)
    const { sql, namespace } = this.#links
    return statesOf(await this.#links.query(sql.show, [namespace, text, kind], call.signal))
  }
}
