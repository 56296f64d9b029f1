/**
 * Jute, the encoding of ZooKeeper: integers of 4 and 8 bytes, and texts, buffers and lists behind their length. A frame is a length of
 * four bytes and the record. Nothing that is read is trusted: a length beyond the frame is a MalformedError.
 */
import { MalformedError } from '../../../kit/frames.ts'

export class Writer {
  #bytes = Buffer.allocUnsafe(1_024)
  #length = 0

  get length(): number {
    return this.#length
  }

  int(value: number): this {
    const at = this.#room(4)
    this.#bytes.writeInt32BE(value, at)
    return this
  }

  long(value: bigint): this {
    const at = this.#room(8)
    this.#bytes.writeBigInt64BE(value, at)
    return this
  }

  bool(value: boolean): this {
    const at = this.#room(1)
    this.#bytes[at] = value ? 1 : 0
    return this
  }

  text(value: string): this {
    const length = Buffer.byteLength(value)
    this.int(length)
    const at = this.#room(length)
    this.#bytes.write(value, at)
    return this
  }

  buffer(value: Buffer): this {
    this.int(value.length)
    const at = this.#room(value.length)
    value.copy(this.#bytes, at)
    return this
  }

  texts(values: readonly string[]): this {
    this.int(values.length)
    for (const value of values) this.text(value)
    return this
  }

  frame(write: (writer: this) => void): this {
    const at = this.#room(4)
    write(this)
    this.#bytes.writeInt32BE(this.#length - at - 4, at)
    return this
  }

  /** All that was written, as a buffer that nobody else uses. */
  take(): Buffer {
    const bytes = this.#bytes.subarray(0, this.#length)
    this.#bytes = Buffer.allocUnsafe(1_024)
    this.#length = 0
    return bytes
  }

  /** Where the next bytes go. */
  #room(length: number): number {
    const at = this.#length
    this.#length += length
    if (this.#length > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(2 * this.#length)
      this.#bytes.copy(larger, 0, 0, at)
      this.#bytes = larger
    }
    return at
  }
}

export class Reader {
  readonly #bytes: Buffer
  readonly #end: number
  #at: number

  constructor(bytes: Buffer, start: number, end: number) {
    this.#bytes = bytes
    this.#at = start
    this.#end = end
  }

  get left(): number {
    return this.#end - this.#at
  }

  int(): number {
    return this.#bytes.readInt32BE(this.#skip(4))
  }

  long(): bigint {
    return this.#bytes.readBigInt64BE(this.#skip(8))
  }

  bool(): boolean {
    return this.#bytes[this.#skip(1)] !== 0
  }

  /** Data may also be null, which is as good as empty. */
  text(): string {
    const [start, end] = this.#counted()
    return this.#bytes.toString('utf8', start, end)
  }

  /** A copy. */
  buffer(): Buffer {
    return Buffer.from(this.#bytes.subarray(...this.#counted()))
  }

  texts(): string[] {
    const count = this.#count()
    // Each has at least its length, so a count that is too large is found out before it costs anything.
    if (count * 4 > this.left) throw new MalformedError(`a list has ${count} items`)
    return Array.from({ length: count }, () => this.text())
  }

  #count(): number {
    return Math.max(0, this.int())
  }

  #counted(): [start: number, end: number] {
    const length = this.#count()
    const start = this.#skip(length)
    return [start, start + length]
  }

  #skip(length: number): number {
    const at = this.#at
    if (length > this.left) throw new MalformedError(`it ends ${length - this.left} bytes too early`)
    this.#at += length
    return at
  }
}
