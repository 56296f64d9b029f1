/**
 * The set of what was linearized, as bits in the order of invocation. All before `base` are in it and none from `top`
 * on, so only what lies between distinguishes two sets: the window slides along with the search. Within it, runs
 * of full chunks are counted instead of copied, since one operation that waits for long keeps the window open.
 */
const full = 0xffff

export class Bits {
  readonly #chunks: Uint16Array
  /** The first that is not in the set. */
  #base = 0
  /** One more than the last that is. */
  #top = 0

  constructor(size: number) {
    this.#chunks = new Uint16Array((size >>> 4) + 1)
  }

  add(index: number): void {
    this.#chunks[index >>> 4] = this.#chunk(index >>> 4) | (1 << (index & 15))
    if (index >= this.#top) this.#top = index + 1
    if (index === this.#base) this.#base = this.#firstMissing(index)
  }

  delete(index: number): void {
    this.#chunks[index >>> 4] = this.#chunk(index >>> 4) & ~(1 << (index & 15))
    if (index < this.#base) this.#base = index
    if (index === this.#top - 1) this.#top = this.#endBefore(index)
  }

  /** Writes what tells this set from others to `out`, from `at` on, as 16-bit numbers; returns where it ends. */
  write(out: number[], at: number): number {
    let end = at + 4
    let run = 0
    const last = (this.#top - 1) >> 4
    for (let index = this.#base >>> 4; index <= last; index++) {
      const chunk = this.#chunk(index)
      if (chunk === full && run < full) {
        run++
        continue
      }
      end = writeRun(out, end, run)
      run = chunk === full ? 1 : 0
      if (chunk !== full) out[end++] = chunk
    }
    end = writeRun(out, end, run)
    out[at] = this.#base & full
    out[at + 1] = this.#base >>> 16
    // The length keeps apart what follows.
    out[at + 2] = (end - at) & full
    out[at + 3] = (end - at) >>> 16
    return end
  }

  #chunk(index: number): number {
    return this.#chunks[index] ?? 0
  }

  #firstMissing(from: number): number {
    let index = from
    for (;;) {
      const chunk = this.#chunk(index >>> 4)
      if (chunk === full && (index & 15) === 0) index += 16
      else if ((chunk >>> (index & 15)) & 1) index++
      else return index
    }
  }

  /** One more than the last member before `index`. */
  #endBefore(index: number): number {
    let end = index
    while (end > this.#base) {
      const chunk = this.#chunk((end - 1) >>> 4)
      if (chunk === 0 && (end & 15) === 0) end -= 16
      else if ((chunk >>> ((end - 1) & 15)) & 1) return end
      else end--
    }
    return this.#base
  }
}

/** A full chunk is never written as itself, so it can announce how many there are. */
function writeRun(out: number[], at: number, run: number): number {
  if (run === 0) return at
  out[at] = full
  out[at + 1] = run
  return at + 2
}
