/** Starts processes of the web server, and sends requests to them. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Reply, Request } from './server.ts'

/** Without what only the wire needs. */
export type Payment = Omit<Request, 'id' | 'crash'>
export type Answer = Extract<Reply, { kind: 'paid' | 'refused' | 'failed' }>

export class WebServer implements Disposable {
  readonly #process: ChildProcess
  readonly #waiting = new Map<number, PromiseWithResolvers<Answer>>()
  #requests = 0

  private constructor(process: ChildProcess) {
    this.#process = process
    process.on('message', (reply: Answer) => this.#waiting.get(reply.id)?.resolve(reply))
    process.once('exit', () => {
      for (const { reject } of this.#waiting.values()) reject(new Error('The web server is gone.'))
    })
  }

  static async start(url: string): Promise<WebServer> {
    const process = fork(join(import.meta.dirname, 'server.ts'), [url])
    await once(process, 'message')
    return new WebServer(process)
  }

  send(payment: Payment, crash = false): Promise<Answer> {
    const id = this.#requests++
    const waiting = Promise.withResolvers<Answer>()
    this.#waiting.set(id, waiting)
    this.#process.send({ id, ...payment, crash } satisfies Request)
    return waiting.promise.finally(() => this.#waiting.delete(id))
  }

  /** Sends a request during which the process dies; resolves when it is dead. */
  async sendAndCrash(payment: Payment): Promise<void> {
    const dead = once(this.#process, 'exit')
    await this.send(payment, true).then(
      () => Promise.reject(new Error('The web server has survived.')),
      () => dead,
    )
  }

  [Symbol.dispose](): void {
    this.#process.kill('SIGKILL')
  }
}
