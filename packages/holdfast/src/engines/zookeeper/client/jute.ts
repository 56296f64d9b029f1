/**
 * Jute, the encoding of ZooKeeper. A record is its fields, one after the other; a frame is a record behind its length. What is read is not
 * trusted: a length beyond the frame is a MalformedError.
 */
import { MalformedError } from '../../../kit/frames.ts'

/** A number is an integer of 4 bytes, a bigint one of 8. Texts and buffers stand behind their length, the items of a list behind their count. */
export type Field = number | bigint | boolean | string | Buffer

export function frame(fields: readonly Field[]): Buffer {
  const length = fields.reduce((sum: number, field) => sum + sizeOf(field), 0)
  const bytes = Buffer.allocUnsafe(4 + length)
  let at = bytes.writeInt32BE(length)
  for (const field of fields) {
    if (typeof field === 'number') at = bytes.writeInt32BE(field, at)
    else if (typeof field === 'bigint') at = bytes.writeBigInt64BE(field, at)
    else if (typeof field === 'boolean') at = bytes.writeInt8(field ? 1 : 0, at)
    else {
      at = bytes.writeInt32BE(sizeOf(field) - 4, at)
      at += typeof field === 'string' ? bytes.write(field, at) : field.copy(bytes, at)
    }
  }
  return bytes
}

function sizeOf(field: Field): number {
  if (typeof field === 'number') return 4
  if (typeof field === 'bigint') return 8
  if (typeof field === 'boolean') return 1
  return 4 + (typeof field === 'string' ? Buffer.byteLength(field) : field.length)
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

  /** Data may also be null, with the length -1. */
  text(): string {
    const length = Math.max(0, this.int())
    const start = this.#skip(length)
    return this.#bytes.toString('utf8', start, start + length)
  }

  texts(): string[] {
    const texts: string[] = []
    for (let count = this.int(); count > 0; count--) texts.push(this.text())
    return texts
  }

  #skip(length: number): number {
    const at = this.#at
    if (length > this.left) throw new MalformedError(`it ends ${length - this.left} bytes too early`)
    this.#at += length
    return at
  }
}
