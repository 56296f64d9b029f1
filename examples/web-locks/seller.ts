/** A program that was written for the locks of one process. It knows `LockManager`, and nothing of Holdfast. */
import { readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { LockManager } from 'node:worker_threads'

export interface Day {
  readonly sold: number
  /** Whether this seller wrote the report of the day. */
  readonly reported: boolean
  /** The name of the error with which a customer left who did not want to wait any longer. */
  readonly left: string
}

export async function workDay(locks: LockManager, seller: string, shop: string, units: number): Promise<Day> {
  const stock = join(shop, 'stock')
  let sold = 0
  while (sold < units)
    await locks.request('stock', async () => {
      const inStock = Number(await readFile(stock, 'utf8'))
      await sleep(10) // the customer pays
      await writeFile(`${stock}.${seller}`, String(inStock - 1))
      await rename(`${stock}.${seller}`, stock)
      sold++
    })

  // A seller who finds another one at the report leaves it to that one.
  const reported = await locks.request('report', { ifAvailable: true }, async (lock) => {
    if (lock === null) return false
    const inStock = await locks.request('stock', { mode: 'shared' }, () => readFile(stock, 'utf8'))
    const written = writeFile(join(shop, 'report'), inStock, { flag: 'wx' })
    return written.then(
      () => true,
      () => false, // it was there already
    )
  })

  const left = await locks.request(`counter/${seller}`, async () => {
    const patience = new AbortController()
    setTimeout(() => patience.abort(), 50)
    const { signal } = patience
    return locks.request(`counter/${seller}`, { signal }, () => 'served').catch((error: Error) => error.name)
  })
  return { sold, reported, left }
}
