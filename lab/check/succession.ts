/** Tells whether a lease was certainly over because the name had gone to a holder that could not have held beside it. */
import type { History, Operation } from './history.ts'
import { type Lease, leasesOf } from './leases.ts'

interface Taken {
  readonly lease: Lease
  readonly acquire: Operation
}

/** Acquires in the order of their returns; at each, the one among them that was invoked last. */
interface Line {
  readonly returns: number[]
  readonly latest: Taken[]
}

export class Succession {
  readonly #any = new Map<string, Line>()
  readonly #exclusive = new Map<string, Line>()

  constructor(history: History) {
    const taken: Taken[] = []
    for (const lease of leasesOf(history).values())
      if (lease.acquire?.outcome === 'ok') taken.push({ lease, acquire: lease.acquire })
    taken.sort((one, other) => one.acquire.returnedSeq - other.acquire.returnedSeq)
    for (const each of taken) {
      add(this.#any, each)
      if (each.lease.claim.weight === each.lease.claim.capacity) add(this.#exclusive, each)
    }
  }

  /** A lease that excludes this one, asked for after this one was granted, and granted before `seq`. */
  successorOf(lease: Lease, seq: number): Lease | null {
    if (lease.acquire?.outcome !== 'ok') return null
    // Against a shared claim only an exclusive one counts; partial weights may have fitted beside it.
    const { weight, capacity } = lease.claim
    const line = (weight === capacity ? this.#any : this.#exclusive).get(lease.name)
    if (line === undefined) return null
    const { latest, returns } = line
    let low = 0
    let high = returns.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if ((returns[middle] ?? Infinity) < seq) low = middle + 1
      else high = middle
    }
    const last = latest[low - 1]
    return last !== undefined && last.acquire.seq > lease.acquire.returnedSeq ? last.lease : null
  }
}

function add(lines: Map<string, Line>, taken: Taken): void {
  const line = lines.get(taken.lease.name) ?? { returns: [], latest: [] }
  lines.set(taken.lease.name, line)
  const before = line.latest.at(-1)
  line.returns.push(taken.acquire.returnedSeq)
  line.latest.push(before !== undefined && before.acquire.seq > taken.acquire.seq ? before : taken)
}
