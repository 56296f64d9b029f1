/** Cuts what arrives on a stream into gRPC messages: a byte that says "not compressed", a length of four bytes, and the message. */
import { MalformedError } from './protobuf.ts'

/** Larger than any answer that this client asks for. Pages and fragments keep them far below it. */
const MAX_MESSAGE_BYTES = 64 * 2 ** 20
const HEAD_BYTES = 5

export class Frames {
  /** The beginning of a message that is not complete. It grows to double its size, so every byte is copied about twice. */
  #rest = Buffer.alloc(0)
  #length = 0
  /** Bytes, for tests. */
  copied = 0

  /** A message has begun, and its end has not come. */
  get isCut(): boolean {
    return this.#length > 0
  }

  /** Complete messages, as parts of buffers that are used again after the next step. */
  *take(chunk: Buffer): Generator<readonly [bytes: Buffer, start: number, end: number]> {
    const bytes = this.#length === 0 ? chunk : this.#append(chunk)
    let at = 0
    while (bytes.length - at >= HEAD_BYTES) {
      if (bytes[at] !== 0) throw new MalformedError('a message is compressed, which was not asked for')
      const length = bytes.readUInt32BE(at + 1)
      if (length > MAX_MESSAGE_BYTES) throw new MalformedError(`a message has ${length} bytes`)
      const end = at + HEAD_BYTES + length
      if (end > bytes.length) break
      yield [bytes, at + HEAD_BYTES, end]
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
