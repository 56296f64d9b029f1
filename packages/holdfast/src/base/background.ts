/** Work that goes on after its caller has been answered: cleanup that runs even when the caller has gone (T14, cleanup after cancelling). */
export class Background {
  readonly #running = new Set<Promise<void>>()

  /** Starts it and keeps it; it reports its own failures. What a failure leaves undone ends by its TTL. */
  run(work: () => Promise<unknown>): void {
    const end = () => void this.#running.delete(running)
    const running: Promise<void> = work().then(end, end)
    this.#running.add(running)
  }

  /** Resolves when nothing is left, including what was started meanwhile. */
  async idle(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running)
  }
}
