/**
 * One of the two that are compared, in a process of its own: in one process, each would run with what the compiler has
 * learnt from the other's calls of the same client library, and clear up the other's garbage. Run by itself, this file is
 * that process; it does what its parent orders, one thing at a time.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, realpathSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { subjectAt } from '../backend.ts'
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

type Answer = { readonly value: number | string } | { readonly error: string }

export class Side {
  readonly #child: ReturnType<typeof fork>
  readonly #gone = new AbortController()
  readonly #kill = () => this.#child.kill('SIGKILL')

  private constructor(packageFolder: string, options: SideOptions) {
    this.#child = fork(import.meta.filename, [JSON.stringify(options)], {
      execArgv: ['--no-warnings', '--import', join(import.meta.dirname, 'redirect.ts')],
      env: { ...process.env, HOLDFAST_BENCH_PACKAGE: packageFolder },
      // Printed lines of a side go to stderr, so that stdout is the report's.
      stdio: ['ignore', 2, 2, 'ipc'],
    })
    this.#child.once('exit', () => this.#gone.abort())
    process.prependListener('exit', this.#kill)
  }

  static async start(packageFolder: string, options: SideOptions): Promise<Side> {
    const side = new Side(packageFolder, options)
    try {
      const loaded = String(await side.#answer())
      if (relative(realpathSync(packageFolder), loaded).startsWith('..'))
        throw new Error(`The package in ${packageFolder} was to be measured, and ${loaded} was loaded.`)
      return side
    } catch (error) {
      side.end()
      throw error
    }
  }

  async open(workload: number, warmUpSeconds: number): Promise<void> {
    await this.#order({ kind: 'open', workload, warmUpSeconds })
  }

  async rate(seconds: number): Promise<number> {
    return Number(await this.#order({ kind: 'rate', seconds }))
  }

  async close(): Promise<void> {
    await this.#order({ kind: 'close' })
  }

  end(): void {
    process.off('exit', this.#kill)
    this.#kill()
  }

  #order(order: Order): Promise<number | string> {
    const answer = this.#answer()
    this.#child.send(order)
    return answer
  }

  async #answer(): Promise<number | string> {
    const { signal } = this.#gone
    const [answer] = (await once(this.#child, 'message', { signal }).catch(() => {
      throw new Error('A process of the benchmark ended early.')
    })) as [Answer]
    if ('error' in answer) throw new Error(answer.error)
    return answer.value
  }
}

if (import.meta.main) {
  const { backend, place, folder } = JSON.parse(process.argv[2] ?? '{}') as SideOptions
  const workloads = workloadsOf(await subjectAt(backend, place))
  let current: OpenWorkload | undefined

  const carryOut = async (order: Order): Promise<number> => {
    if (order.kind === 'open') {
      const own = join(folder, String(order.workload))
      mkdirSync(own, { recursive: true })
      current = await workloads[order.workload]?.open(own)
      await current?.warmUp(order.warmUpSeconds)
    }
    if (order.kind === 'rate') return (await current?.rate(order.seconds)) ?? Number.NaN
    if (order.kind === 'close') await current?.close()
    return 0
  }
  process.on('message', (order: Order) => {
    carryOut(order).then(
      (value) => process.send?.({ value } satisfies Answer),
      (error: Error) => process.send?.({ error: error.stack ?? String(error) } satisfies Answer),
    )
  })
  process.on('disconnect', () => process.exit())
  process.send?.({ value: fileURLToPath(import.meta.resolve('holdfast')) } satisfies Answer)
}
