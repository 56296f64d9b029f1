/** One contender in a process of its own. Run by itself, this file is that process. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { Session } from 'node:inspector/promises'
import { subjectAt } from '../backend.ts'
import { Child, optionsOfChild, serve } from '../child.ts'
import type { Place, Running } from '../subject.ts'
import { type ClientCost, countSockets, measureClient, runPairs } from './meters.ts'

export interface SideOptions {
  readonly backend: string
  readonly place: Place
  /** Empty, and its own. */
  readonly folder: string
  /** Which of the subject's comparisons, and which of its contenders. */
  readonly comparison: number
  readonly contender: number
}

type Order =
  | { readonly kind: 'warm-up' | 'measure'; readonly atOnce: number; readonly seconds: number }
  | { readonly kind: 'profile'; readonly atOnce: number; readonly seconds: number; readonly file: string }
  | { readonly kind: 'pair' | 'close' }

const profiledEveryUs = 100

export class Side {
  readonly #child: Child<Order, ClientCost | null>

  private constructor(child: Child<Order, ClientCost | null>) {
    this.#child = child
  }

  static async start(packageFolder: string, options: SideOptions): Promise<Side> {
    return new Side(await Child.start(import.meta.filename, packageFolder, options))
  }

  async warmUp(atOnce: number, seconds: number): Promise<void> {
    await this.#child.order({ kind: 'warm-up', atOnce, seconds })
  }

  async pair(): Promise<void> {
    await this.#child.order({ kind: 'pair' })
  }

  async measure(atOnce: number, seconds: number): Promise<ClientCost> {
    const cost = await this.#child.order({ kind: 'measure', atOnce, seconds })
    if (cost === null) throw new Error('A process of the benchmark has measured nothing.')
    return cost
  }

  /** Writes a CPU profile, for the developer tools of a browser. */
  async profile(atOnce: number, seconds: number, file: string): Promise<void> {
    await this.#child.order({ kind: 'profile', atOnce, seconds, file })
  }

  async close(): Promise<void> {
    await this.#child.order({ kind: 'close' })
  }

  end(): void {
    this.#child.end()
  }
}

async function profile(work: () => Promise<unknown>, file: string): Promise<void> {
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.setSamplingInterval', { interval: profiledEveryUs })
  await session.post('Profiler.start')
  await work()
  const { profile } = await session.post('Profiler.stop')
  session.disconnect()
  writeFileSync(file, JSON.stringify(profile))
}

if (import.meta.main) {
  countSockets()
  const { backend, place, folder, comparison, contender } = optionsOfChild<SideOptions>()
  const { comparisons } = await subjectAt(backend, place)
  const chosen = comparisons[comparison]?.contenders[contender]
  if (chosen === undefined) throw new Error('There is no such contender.')
  mkdirSync(folder, { recursive: true })
  const running: Running = await chosen.open(folder)

  serve(async (order: Order) => {
    if (order.kind === 'measure') return await measureClient(running, order.atOnce, order.seconds)
    if (order.kind === 'warm-up') await runPairs(running, order.atOnce, order.seconds)
    if (order.kind === 'profile')
      await profile(() => runPairs(running, order.atOnce, order.seconds), order.file)
    if (order.kind === 'pair') await running.pair('bench/probe')
    if (order.kind === 'close') await running.close()
    return null
  })
}
