/**
 * Decides when a request may be forwarded. To judge and to record the token is not enough (T95, effects in the order of arrival): a
 * slow older request takes effect at the target after a newer one.
 *
 *   (arrives) ──mark raised──▶ draining ──older ones are answered──▶ in flight ──answered──▶ (over)
 *                              draining ──a newer one arrives: stale     in flight ──no answer──▶ quarantined ──limit + quarantine──▶ (over)
 *
 *   drain        a newer token waits for the answers to all older ones. Its mark is raised when it arrives, so older ones are
 *                refused from then on, and none can keep it waiting.
 *   quarantine   a request without an answer may take effect late. Newer tokens are refused until limit and quarantine are over. They
 *                count from when the proxy gives up: it sends nothing afterwards, and may have been paused before it sent anything.
 *
 * What may go wrong between two steps: the proxy dies after the mark and before the forwarding: nothing was forwarded. It dies in
 * flight: the row that was stored before says so, and the next start puts it into quarantine. It dies after the answer and before
 * the row is gone: a quarantine that was not needed.
 */
import type { Clock } from '../../../../base/clock.ts'
import type { Fence } from '../../../../base/fence.ts'
import { announceAccepted, decide, pass } from '../../../../guards/checkpoint.ts'
import type { GuardSettings } from '../../../../guards/settings.ts'
import { ownStep, prepare, rollBack, type SqliteDatabase } from '../../client/index.ts'
import { ensureLayout } from '../layout.ts'
import { SqliteStore } from '../store.ts'

const table = `
  -- Requests that were forwarded, and whose answer is not known to be there.
  CREATE TABLE IF NOT EXISTS holdfast_proxy_requests (
    id    INTEGER PRIMARY KEY,
    name  TEXT NOT NULL
  ) STRICT;
`

/** How a forwarded request has ended. `over`: it was answered, or never sent. `unknown`: it may still take effect. */
export type RequestEnd = 'over' | 'unknown'

export interface Passage {
  end(how: RequestEnd): void
}

/** A request may still take effect, so nothing newer is forwarded. */
export class Quarantined extends Error {
  readonly leftMs: number

  constructor(leftMs: number) {
    super('quarantined')
    this.leftMs = leftMs
  }
}

interface InFlight {
  readonly id: number
  /** Null after a restart: it conflicts with everything. */
  readonly fence: Fence | null
  /** Until when it may take effect; undefined while its answer is awaited. */
  untilMs: number | undefined
}

/** Requests for one name, and those that wait for a change among them. */
interface Traffic {
  readonly inFlight: Set<InFlight>
  changed: PromiseWithResolvers<void>
}

export interface GateLimits {
  readonly limitMs: number
  readonly quarantineMs: number
}

const FORGETTING_INTERVAL_MS = 3_600_000

export class Gate {
  readonly #database: SqliteDatabase
  readonly #settings: GuardSettings
  readonly #clock: Clock
  readonly #mayTakeMs: number
  readonly #store: SqliteStore
  readonly #traffic = new Map<string, Traffic>()
  /** Rows whose requests are over. They go with the next step. */
  readonly #over: number[] = []
  #lastId = 0
  #forgotAtMs = Number.NEGATIVE_INFINITY

  /** The connection is the gate's alone. */
  constructor(database: SqliteDatabase, settings: GuardSettings, { limitMs, quarantineMs }: GateLimits) {
    this.#database = database
    this.#settings = settings
    this.#clock = settings.clock
    this.#mayTakeMs = limitMs + quarantineMs
    this.#store = new SqliteStore(database, settings.name, this.#clock)
    this.#step(() => {
      ensureLayout(database)
      database.exec(table)
      const list = prepare(
        database,
        "SELECT coalesce(json_group_array(json_array(id, name)), '[]') AS found FROM holdfast_proxy_requests",
      )
      for (const [id, name] of JSON.parse((list.get() as { found: string }).found) as [number, string][]) {
        this.#lastId = Math.max(this.#lastId, id)
        this.#add(name, { id, fence: null, untilMs: this.#clock.monotonicMs() + this.#mayTakeMs })
      }
    })
  }

  /**
   * Resolves when the request may be forwarded, which has been stored by then.
   *
   * @throws FenceStaleError, FenceForeignError, Quarantined
   */
  async enter(fence: Fence): Promise<Passage> {
    const proofs = [{ fence }]
    this.#step(() => {
      this.#forgetIfDue()
      pass(this.#store, this.#settings, proofs, false)
    })
    this.#wake(fence.name)
    for (;;) {
      const rivals = this.#rivalsOf(fence)
      if (rivals.length === 0) break
      const untilMs = Math.max(...rivals.map((rival) => rival.untilMs ?? 0))
      if (untilMs > 0) throw new Quarantined(untilMs - this.#clock.monotonicMs())
      await this.#traffic.get(fence.name)?.changed.promise
      ownStep(this.#database, () => decide(this.#store, this.#settings, proofs, false))
    }
    const request: InFlight = { id: ++this.#lastId, fence, untilMs: undefined }
    this.#step(() => {
      pass(this.#store, this.#settings, proofs, false)
      prepare(this.#database, 'INSERT INTO holdfast_proxy_requests VALUES (?, ?)').run(request.id, fence.name)
    })
    announceAccepted(this.#settings.name, proofs)
    this.#add(fence.name, request)
    return { end: (how) => this.#end(fence.name, request, how) }
  }

  /** Forgets what is over, so that the next start does not take it for something in flight. */
  flush(): void {
    this.#step(() => {})
  }

  /** Names that nobody uses leave a floor behind, and quarantines that nobody has waited for end. */
  #forgetIfDue(): void {
    const nowMs = this.#clock.monotonicMs()
    if (nowMs - this.#forgotAtMs < FORGETTING_INTERVAL_MS) return
    this.#forgotAtMs = nowMs
    const { forgetAfterMs } = this.#settings
    if (forgetAfterMs !== Number.POSITIVE_INFINITY) this.#store.forget(forgetAfterMs)
    for (const [name, { inFlight }] of this.#traffic)
      for (const each of inFlight) this.#removeIfOver(name, each, nowMs)
  }

  #end(name: string, request: InFlight, how: RequestEnd): void {
    if (how === 'unknown') request.untilMs = this.#clock.monotonicMs() + this.#mayTakeMs
    else this.#remove(name, request)
    this.#wake(name)
  }

  /** Requests that must not take effect after this one. Those whose quarantine has ended are gone. */
  #rivalsOf(fence: Fence): InFlight[] {
    const { inFlight } = this.#traffic.get(fence.name) ?? { inFlight: [] }
    const nowMs = this.#clock.monotonicMs()
    return [...inFlight].filter((each) => {
      if (this.#removeIfOver(fence.name, each, nowMs)) return false
      const { fence: other } = each
      return (
        other === null ||
        (other.grant !== fence.grant && (other.mode === 'exclusive' || fence.mode === 'exclusive'))
      )
    })
  }

  #add(name: string, request: InFlight): void {
    const traffic = this.#traffic.get(name) ?? { inFlight: new Set(), changed: Promise.withResolvers<void>() }
    traffic.inFlight.add(request)
    this.#traffic.set(name, traffic)
  }

  #removeIfOver(name: string, request: InFlight, nowMs: number): boolean {
    if (request.untilMs === undefined || request.untilMs > nowMs) return false
    this.#remove(name, request)
    return true
  }

  #remove(name: string, request: InFlight): void {
    const traffic = this.#traffic.get(name)
    if (traffic?.inFlight.delete(request)) this.#over.push(request.id)
    if (traffic?.inFlight.size === 0) {
      this.#traffic.delete(name)
      traffic.changed.resolve()
    }
  }

  /** Those that wait look again: they may go on, or have become stale. */
  #wake(name: string): void {
    const traffic = this.#traffic.get(name)
    if (traffic === undefined) return
    traffic.changed.resolve()
    traffic.changed = Promise.withResolvers()
  }

  /** One transaction. It is synchronous, so nothing comes between a look at the requests in flight and what is stored. */
  #step(body: () => void): void {
    const over = this.#over.splice(0)
    ownStep(
      this.#database,
      () => {
        this.#database.exec('BEGIN IMMEDIATE')
        try {
          body()
          if (over.length > 0)
            prepare(
              this.#database,
              'DELETE FROM holdfast_proxy_requests WHERE id IN (SELECT value FROM json_each(?))',
            ).run(JSON.stringify(over))
          this.#database.exec('COMMIT')
        } catch (error) {
          this.#over.push(...over)
          rollBack(this.#database)
          throw error
        }
      },
      'proxy',
    )
  }
}
