/**
 * A process of its own for one of those that are compared, with the package in one folder as `holdfast`. In one process, each
 * would run with what the compiler has learnt from the other's calls of the same client library, and clear up the other's
 * garbage. A child carries out what its parent orders, one thing at a time.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { realpathSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

type Answer<Value> = { readonly value: Value } | { readonly error: string }

export class Child<Order extends object, Value> {
  readonly #child: ReturnType<typeof fork>
  readonly #gone = new AbortController()
  readonly #kill = () => this.#child.kill('SIGKILL')

  private constructor(file: string, packageFolder: string, options: object) {
    this.#child = fork(file, [JSON.stringify(options)], {
      execArgv: ['--no-warnings', '--import', join(import.meta.dirname, 'redirect.ts')],
      env: { ...process.env, HOLDFAST_BENCH_PACKAGE: packageFolder },
      // Printed lines of a child go to stderr, so that stdout is the report's.
      stdio: ['ignore', 2, 2, 'ipc'],
    })
    this.#child.once('exit', () => this.#gone.abort())
    process.prependListener('exit', this.#kill)
  }

  /** `file` calls `serve` when it is run by itself. */
  static async start<Order extends object, Value>(
    file: string,
    packageFolder: string,
    options: object,
  ): Promise<Child<Order, Value>> {
    const child = new Child<Order, Value>(file, packageFolder, options)
    try {
      const loaded = await child.#answer<string>()
      if (relative(realpathSync(packageFolder), loaded).startsWith('..'))
        throw new Error(`The package in ${packageFolder} was to be measured, and ${loaded} was loaded.`)
      return child
    } catch (error) {
      child.end()
      throw error
    }
  }

  order(order: Order): Promise<Value> {
    const answer = this.#answer<Value>()
    this.#child.send(order)
    return answer
  }

  end(): void {
    process.off('exit', this.#kill)
    this.#kill()
  }

  async #answer<T>(): Promise<T> {
    const { signal } = this.#gone
    const [answer] = (await once(this.#child, 'message', { signal }).catch(() => {
      throw new Error('A process of the benchmark ended early.')
    })) as [Answer<T>]
    if ('error' in answer) throw new Error(answer.error)
    return answer.value
  }
}

/** The options that the parent has started this process with. */
export function optionsOfChild<Options>(): Options {
  return JSON.parse(process.argv[2] ?? '{}') as Options
}

/** Carries out the parent's orders, for as long as the parent lives. */
export function serve<Order, Value>(carryOut: (order: Order) => Promise<Value>): void {
  process.on('message', (order: Order) => {
    carryOut(order).then(
      (value) => process.send?.({ value }),
      (error: Error) => process.send?.({ error: error.stack ?? String(error) }),
    )
  })
  process.on('disconnect', () => process.exit())
  process.send?.({ value: fileURLToPath(import.meta.resolve('holdfast')) })
}
