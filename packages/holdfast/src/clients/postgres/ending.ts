/**
 * Ends connections of `pg`, also those whose other side does not answer any more: it would wait for them for as long as
 * TCP does, and for one that was never welcomed without an end.
 */
import { systemClock } from '../../base/clock.ts'

const FAREWELL_MS = 1_000

/** Inside a client of `pg`; without it there is nothing to be done but to leave it to itself. */
interface WithStream {
  readonly connection?: { readonly stream?: { destroy?(): void } }
}

/**
 * `end` resolves by itself when all is well. Whatever of these is still open a second later is cut off, and a second
 * after that nobody waits any more.
 */
export function endWithin(end: () => Promise<unknown>, connections: () => Iterable<unknown>): Promise<void> {
  return new Promise((resolve, reject) => {
    const after = (fire: () => void) => systemClock.setTimer(FAREWELL_MS, fire, { keepsProcessAlive: true })
    const cutOff = () => {
      for (const each of connections()) (each as WithStream).connection?.stream?.destroy?.()
    }
    let timer = after(() => {
      cutOff()
      timer = after(resolve)
    })
    const done = () => timer.cancel()
    end().then(
      () => {
        done()
        // A pool does not know of a connection that failed while it was being opened.
        cutOff()
        resolve()
      },
      (error: unknown) => {
        done()
        reject(error)
      },
    )
  })
}
