/** How a client touches what it protects, and what of that goes into the history. */
import { isHoldfastError } from '../../packages/holdfast/src/base/errors.ts'
import type { Lease } from '../../packages/holdfast/src/base/types.ts'
import { lockName, type Refused, resourceName, type TurnOutcome } from './messages.ts'
import type { Notes } from './notes.ts'
import { nowMs } from './observer.ts'
import {
  ChangedMeanwhileError,
  type Document,
  type OpenResource,
  type Touched,
  UnknownOutcomeError,
} from './resources/resource.ts'

type Access = 'read' | 'write'
type Failed = 'refused' | 'unknown'

interface Facts {
  readonly entry?: string
  readonly saw?: string
  readonly wrote?: string
}

/** A guard's verdict, and its time, if that is known. */
type Verdict =
  | { readonly verdict: 'accepted'; readonly at: number | undefined }
  | { readonly verdict: 'refused'; readonly at: number; readonly reason: 'stale'; readonly highest: bigint }

export interface TouchingOptions {
  readonly client: string
  readonly notes: Notes
  readonly resource: OpenResource
  readonly report: (refused: Refused) => void
}

export class Touching {
  readonly #options: TouchingOptions

  constructor(options: TouchingOptions) {
    this.#options = options
  }

  read(lease: Lease): Promise<Document | Failed> {
    return this.#touch(lease, 'read', {}, () => this.#options.resource.read(lease.fence))
  }

  async write(lease: Lease, before: Document, entry: string): Promise<TurnOutcome> {
    const facts = { entry, saw: before.entries.at(-1) ?? 'nothing', wrote: entry }
    const written = await this.#touch(lease, 'write', facts, () =>
      this.#options.resource.write([...before.entries, entry], before, lease.fence),
    )
    return typeof written === 'string' ? written : 'written'
  }

  async #touch<T extends Touched>(
    lease: Lease,
    access: Access,
    facts: Facts,
    work: () => Promise<T>,
  ): Promise<T | Failed> {
    const { notes, resource, report } = this.#options
    const { end } = notes.invoke({
      op: access,
      name: lockName,
      leaseId: lease.id,
      ...(lease.fence && { token: lease.fence.token }),
      resource: resourceName,
      ...(resource.guard && { guard: resource.guard.name }),
      ...facts,
    })
    try {
      const touched = await work()
      this.#judged(lease, access, { verdict: 'accepted', at: touched.at })
      end('ok')
      return touched
    } catch (error) {
      const at = nowMs()
      if (isHoldfastError(error, 'FENCE_STALE')) {
        const { highest, fence } = error
        this.#judged(lease, access, { verdict: 'refused', at, reason: 'stale', highest })
        report({ kind: 'refused', access, at, stale: { token: fence.token, highest } })
        end('fail', { error: error.code })
        return 'refused'
      }
      if (error instanceof ChangedMeanwhileError) {
        report({ kind: 'refused', access, at, stale: null })
        end('fail', { error: error.message })
        return 'refused'
      }
      if (!(error instanceof UnknownOutcomeError)) throw error
      end('unknown', { error: error.message })
      return 'unknown'
    }
  }

  /** Where the guard's step has no time of the observer, the operations alone say in which order it decided. */
  #judged({ id: leaseId, fence }: Lease, access: Access, { at, ...said }: Verdict): void {
    const { client, notes, resource } = this.#options
    if (resource.guard?.isTimed !== true || fence === undefined || at === undefined) return
    const about = { name: lockName, leaseId, token: fence.token, process: client, access }
    notes.add({ kind: 'guard', guard: resource.guard.name, at, ...about, ...said })
  }
}
