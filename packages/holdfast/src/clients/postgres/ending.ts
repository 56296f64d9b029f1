/** Ends connections of `pg`, also those whose other side does not answer any more: it would wait for them for as long as TCP does. */
import { systemClock } from '../../core/clock.ts'

const FAREWELL_MS = 1_000

/** Inside a client of `pg`; without it there is nothing to be done but to wait. */
interface WithStream {
  readonly connection?: { readonly stream?: { destroy?(): void } }
}

/** `end` resolves by itself when all is well; whatever of these is still open a second later is cut off. */
export function endWithin(end: () => Promise<unknown>, connections: () => Iterable<unknown>): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = systemClock.setTimer(
      FAREWELL_MS,
      () => {
        for (const each of connections()) (each as WithStream).connection?.stream?.destroy?.()
      },
      { keepsProcessAlive: true },
    )
    const done = () => timer.cancel()
    end().then(
      () => {
        done()
        resolve()
      },
      (error: unknown) => {
        done()
        reject(error)
      },
    )
  })
}
