/** One of the two that are compared, in a process of its own. Run by itself, this file is that process. */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { subjectAt } from '../backend.ts'
import { Child, optionsOfChild, serve } from '../child.ts'
import type { Place } from '../subject.ts'
import { type OpenWorkload, workloadsOf } from './workloads.ts'

export interface SideOptions {
  readonly backend: string
  readonly place: Place
  readonly folder: string
}

type Order =
  | { readonly kind: 'open'; readonly workload: number; readonly warmUpSeconds: number }
  | { readonly kind: 'rate'; readonly seconds: number }
  | { readonly kind: 'close' }

export class Side {
  readonly #child: Child<Order, number>

  private constructor(child: Child<Order, number>) {
    this.#child = child
  }

  static async start(packageFolder: string, options: SideOptions): Promise<Side> {
    return new Side(await Child.start(import.meta.filename, packageFolder, options))
  }

  async open(workload: number, warmUpSeconds: number): Promise<void> {
    await this.#child.order({ kind: 'open', workload, warmUpSeconds })
  }

  rate(seconds: number): Promise<number> {
    return this.#child.order({ kind: 'rate', seconds })
  }

  async close(): Promise<void> {
    await this.#child.order({ kind: 'close' })
  }

  end(): void {
    this.#child.end()
  }
}

if (import.meta.main) {
  const { backend, place, folder } = optionsOfChild<SideOptions>()
  const workloads = workloadsOf(await subjectAt(backend, place))
  let current: OpenWorkload | undefined

  serve(async (order: Order) => {
    if (order.kind === 'open') {
      const own = join(folder, String(order.workload))
      mkdirSync(own, { recursive: true })
      current = await workloads[order.workload]?.open(own)
      await current?.warmUp(order.warmUpSeconds)
    }
    if (order.kind === 'rate') return (await current?.rate(order.seconds)) ?? Number.NaN
    if (order.kind === 'close') await current?.close()
    return 0
  })
}
