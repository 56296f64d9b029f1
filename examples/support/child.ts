/** Processes of an example: started as `node program.ts`, and they tell what they do. */
import { type ChildProcess, fork } from 'node:child_process'

export interface Told {
  readonly kind: string
}

/** Killed at the latest when the example ends. */
export class Children implements Disposable {
  readonly #all: ChildProcess[] = []

  start(program: string, args: readonly string[]): ChildProcess {
    const child = fork(program, args, {
      execArgv: ['--disable-warning=ExperimentalWarning', '--disable-warning=HOLDFAST_REDIS_PERSISTENCE'],
      stdio: ['pipe', 'inherit', 'inherit', 'ipc'],
    })
    // A dead process does not read; its exit says so better than a write error.
    child.stdin?.on('error', () => {})
    this.#all.push(child)
    return child
  }

  [Symbol.dispose](): void {
    for (const child of this.#all) child.kill('SIGKILL')
  }
}

/** The next message of this kind. */
export function heard<T extends Told, K extends T['kind']>(
  from: ChildProcess,
  kind: K,
): Promise<Extract<T, { readonly kind: K }>> {
  return new Promise((resolve, reject) => {
    const gone = () => reject(new Error(`a process ended before it told "${kind}"`))
    const listen = (told: T) => {
      if (told.kind !== kind) return
      from.off('message', listen)
      from.off('exit', gone)
      resolve(told as Extract<T, { readonly kind: K }>)
    }
    from.on('message', listen)
    from.once('exit', gone)
  })
}

/** Its exit code. */
export function ended(child: ChildProcess): Promise<number | null> {
  return new Promise((resolve) => child.once('exit', resolve))
}
