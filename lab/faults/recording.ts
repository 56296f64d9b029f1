// Recorded bytes of clients, to be sent again through a proxy: a request that was delivered twice, or long after its sender
// gave up on it. The copy travels on a connection of its own and its answers are thrown away, so the client
// is not confused by an answer that it did not ask for.

import { connect } from 'node:net'
import type { Address, Link } from './link.ts'

export class Recording {
  readonly #target: Address
  readonly #sent = new Map<Link, Buffer[]>()
  #recording = true

  constructor(target: Address) {
    this.#target = target
  }

  add(link: Link, bytes: Buffer): void {
    if (!this.#recording) return
    const sent = this.#sent.get(link)
    if (sent) sent.push(bytes)
    else this.#sent.set(link, [bytes])
  }

  end(): void {
    this.#recording = false
  }

  /**
   * Sends each connection's bytes once more. It resolves when the server has answered, by default with anything at all.
   * Where the protocol begins with a handshake, the recording must have begun before the client connected.
   */
  async replay(answered: (answer: Buffer) => boolean = (answer) => answer.length > 0): Promise<void> {
    this.end()
    await Promise.all([...this.#sent.values()].map((sent) => this.#send(Buffer.concat(sent), answered)))
  }

  async #send(bytes: Buffer, answered: (answer: Buffer) => boolean): Promise<void> {
    const socket = connect({ ...this.#target, noDelay: true })
    let answer = Buffer.alloc(0)
    await new Promise<void>((resolve, reject) => {
      socket.on('data', (chunk) => {
        answer = Buffer.concat([answer, chunk])
        if (answered(answer)) resolve()
      })
      socket.once('error', reject)
      socket.once('close', () => reject(new Error('the server closed the connection of the replay')))
      socket.write(bytes)
    })
    socket.destroy()
  }
}
