/** Cuts what arrives on a stream into messages: each stands behind a head that says how long it is. */

/** Bytes that are not a message of the protocol. Nothing may be concluded from them. */
export class MalformedError extends Error {}

/** Larger than any answer that a client asks for. Pages and fragments keep them far below it. */
const MAX_MESSAGE_BYTES = 64 * 2 ** 20

export interface FrameHead {
  readonly bytes: number
  /** The length of the message whose head is at `at`. It throws a MalformedError if that is no head. */
  readonly lengthOf: (bytes: Buffer, at: number) => number
}

export class Frames {
  readonly #head: FrameHead
  /** The beginning of a message that is not complete. It grows to double its size, so every byte is copied about twice. */
  #rest = Buffer.alloc(0)
  #length = 0
  /** Bytes, for tests. */
  copied = 0

  constructor(head: FrameHead) {
    this.#head = head
  }

  /** A message has begun, and its end has not come. */
  get isCut(): boolean {
    return this.#length > 0
  }

  /** Complete messages, as parts of buffers that are used again after the next step. */
  *take(chunk: Buffer): Generator<readonly [bytes: Buffer, start: number, end: number]> {
    const bytes = this.#length === 0 ? chunk : this.#append(chunk)
    const head = this.#head
    let at = 0
    while (bytes.length - at >= head.bytes) {
      const length = head.lengthOf(bytes, at)
      if (length > MAX_MESSAGE_BYTES) throw new MalformedError(`a message has ${length} bytes`)
      const end = at + head.bytes + length
      if (end > bytes.length) break
      yield [bytes, at + head.bytes, end]
      at = end
    }
    if (at > 0) {
      this.#rest = Buffer.alloc(0)
      this.#length = 0
    }
    if (at > 0 || this.#length === 0) this.#append(bytes.subarray(at))
  }

  #append(chunk: Buffer): Buffer {
    const length = this.#length + chunk.length
    if (length > this.#rest.length) {
      const larger = Buffer.allocUnsafe(Math.max(2 * this.#rest.length, length))
      this.copied += this.#rest.copy(larger, 0, 0, this.#length)
      this.#rest = larger
    }
    this.copied += chunk.copy(this.#rest, this.#length)
    this.#length = length
    return this.#rest.subarray(0, length)
  }
}
