/**
 * Protocol buffers, as far as etcd's messages need them. A message is described by a table of its fields; what the table does not
 * name is skipped when it is read. Integers are numbers: revisions and our lease ids stay below 2^53.
 */
import { type FrameHead, MalformedError } from '../../../kit/frames.ts'

/** `id`: an unsigned number of 64 bits that is only shown, as hexadecimal text. */
type Scalar = 'int' | 'bool' | 'text' | 'id'
// biome-ignore lint/suspicious/noExplicitAny: the table of a message says what it has
type Field = readonly [number: number, type: Scalar | Schema<any>, repeated?: 'repeated']
type Fields = { readonly [name: string]: Field }

type One<T> = T extends 'int' ? number : T extends 'bool' ? boolean : T extends Schema<infer M> ? M : string
type Value<F extends Field> = F extends readonly [number, infer T, 'repeated'] ? readonly One<T>[] : One<F[1]>
type IsOptional<F extends Field> = F[1] extends Scalar ? false : F[2] extends 'repeated' ? false : true

/** A message to be sent: what is left out is zero, empty or not there. */
export type Sent<F extends Fields> = { readonly [K in keyof F]?: Value<F[K]> | undefined }
/** A message that was received: only messages in it may be missing. */
export type Received<F extends Fields> = {
  readonly [K in keyof F as IsOptional<F[K]> extends true ? never : K]: Value<F[K]>
} & { readonly [K in keyof F as IsOptional<F[K]> extends true ? K : never]?: Value<F[K]> }

interface KnownField {
  readonly name: string
  readonly tag: number
  readonly type: Field[1]
  readonly repeated: boolean
}

const VARINT = 0
const FIXED_64 = 1
const DELIMITED = 2
const FIXED_32 = 5

export class Schema<T> {
  #fields: readonly KnownField[] = []
  #byNumber: readonly (KnownField | undefined)[] = []
  #empty: Readonly<Record<string, unknown>> = {}

  constructor(fields: Fields) {
    this.define(fields)
  }

  /** For messages that contain each other. */
  define(fields: Fields): void {
    this.#fields = Object.entries(fields).map(([name, [number, type, repeated]]) => ({
      name,
      tag: number * 8 + (type === 'text' || type instanceof Schema ? DELIMITED : VARINT),
      type,
      repeated: repeated === 'repeated',
    }))
    const byNumber: KnownField[] = []
    for (const field of this.#fields) byNumber[field.tag >>> 3] = field
    this.#byNumber = byNumber
    const scalars = this.#fields.filter(({ type, repeated }) => !(type instanceof Schema) && !repeated)
    this.#empty = Object.fromEntries(scalars.map(({ name, type }) => [name, emptyOf(type)]))
  }

  write(writer: Writer, message: T): void {
    for (const field of this.#fields) {
      const value = (message as Record<string, unknown>)[field.name]
      if (value === undefined) continue
      if (field.repeated) for (const each of value as readonly unknown[]) writeField(writer, field, each)
      else writeField(writer, field, value)
    }
  }

  read(bytes: Buffer, start = 0, end = bytes.length): T {
    const message: Record<string, unknown> = { ...this.#empty }
    for (const { name, repeated } of this.#fields) if (repeated) message[name] = []
    const reader = new Reader(bytes, start, end)
    while (reader.at < end) {
      const tag = reader.tag()
      const field = this.#byNumber[tag >>> 3]
      if (field === undefined) reader.skip(tag & 7)
      else if (tag !== field.tag) throw new MalformedError(`the field ${field.name} has another type`)
      else if (field.repeated) (message[field.name] as unknown[]).push(readField(reader, field))
      else message[field.name] = readField(reader, field)
    }
    return message as T
  }
}

export function sent<const F extends Fields>(fields: F): Schema<Sent<F>> {
  return new Schema(fields)
}

export function received<const F extends Fields>(fields: F): Schema<Received<F>> {
  return new Schema(fields)
}

function emptyOf(type: Field[1]): unknown {
  if (type === 'int') return 0
  return type === 'bool' ? false : ''
}

function writeField(writer: Writer, { tag, type, repeated }: KnownField, value: unknown): void {
  if (type instanceof Schema) {
    writer.int(tag)
    writer.nested(() => type.write(writer, value))
  } else if (type === 'text') {
    if (value === '' && !repeated) return
    writer.int(tag)
    writer.text(value as string)
  } else if (Number(value) !== 0 || repeated) {
    writer.int(tag)
    writer.int(Number(value))
  }
}

function readField(reader: Reader, { type }: KnownField): unknown {
  if (type instanceof Schema) return reader.delimited((bytes, start, end) => type.read(bytes, start, end))
  if (type === 'text') return reader.delimited((bytes, start, end) => bytes.toString('utf8', start, end))
  if (type === 'id') return reader.id()
  const number = reader.int()
  return type === 'bool' ? number !== 0 : number
}

/** Writes into one buffer that grows and is used again. */
export class Writer {
  #bytes = Buffer.allocUnsafe(16_384)
  at = 0

  /** A number that is not negative. */
  int(number: number): void {
    this.#makeRoom(10)
    let rest = number
    while (rest > 0x7f) {
      this.#bytes[this.at++] = (rest % 128) | 0x80
      rest = Math.floor(rest / 128)
    }
    this.#bytes[this.at++] = rest
  }

  text(text: string): void {
    const length = Buffer.byteLength(text)
    this.int(length)
    this.#makeRoom(length)
    this.at += this.#bytes.write(text, this.at, length)
  }

  nested(write: () => void): void {
    const start = this.at
    // Room for a length of one byte, which most have. A longer one moves the message.
    this.at++
    write()
    const length = this.at - start - 1
    const more = varintLength(length) - 1
    if (more > 0) {
      this.#makeRoom(more)
      this.#bytes.copyWithin(start + 1 + more, start + 1, this.at)
    }
    this.at = start
    this.int(length)
    this.at += length
  }

  /** The message that was written, framed for gRPC. The writer starts again. */
  framed(write: () => void): Buffer {
    this.at = 5
    write()
    const framed = Buffer.from(this.#bytes.subarray(0, this.at))
    framed[0] = 0
    framed.writeUInt32BE(this.at - 5, 1)
    return framed
  }

  #makeRoom(length: number): void {
    if (this.at + length <= this.#bytes.length) return
    const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.at + length))
    this.#bytes.copy(larger, 0, 0, this.at)
    this.#bytes = larger
  }
}

function varintLength(number: number): number {
  let length = 1
  for (let rest = number; rest > 0x7f; rest = Math.floor(rest / 128)) length++
  return length
}

class Reader {
  readonly #bytes: Buffer
  readonly #end: number
  at: number

  constructor(bytes: Buffer, at: number, end: number) {
    this.#bytes = bytes
    this.at = at
    this.#end = end
  }

  /** The number of a field, and its type in the last three bits. */
  tag(): number {
    const [low, high] = this.#halves()
    if (high !== 0 || low < 8) throw new MalformedError('a field has no valid number')
    return low
  }

  /** Signed, as a lease's TTL of -1 is. */
  int(): number {
    const [low, high] = this.#halves()
    return high * 2 ** 32 + low - (high >= 2 ** 31 ? 2 ** 64 : 0)
  }

  id(): string {
    const [low, high] = this.#halves()
    return ((BigInt(high) << 32n) | BigInt(low)).toString(16)
  }

  delimited<T>(read: (bytes: Buffer, start: number, end: number) => T): T {
    const start = this.#step(this.int())
    return read(this.#bytes, start, this.at)
  }

  skip(wireType: number): void {
    if (wireType === VARINT) this.#halves()
    else if (wireType === DELIMITED) this.#step(this.int())
    else if (wireType === FIXED_64) this.#step(8)
    else if (wireType === FIXED_32) this.#step(4)
    else throw new MalformedError(`there is no type ${wireType} of fields`)
  }

  /** Returns where it began. */
  #step(length: number): number {
    const start = this.at
    if (length < 0 || length > this.#end - start) throw new MalformedError('a field ends after its message')
    this.at += length
    return start
  }

  #halves(): readonly [low: number, high: number] {
    let [low, high] = [0, 0]
    for (let shift = 0; ; shift += 7) {
      if (this.at >= this.#end || shift > 63) throw new MalformedError('a number does not end')
      const byte = this.#bytes[this.at++] as number
      const bits = byte & 0x7f
      if (shift < 28) low |= bits << shift
      else if (shift === 28) {
        low |= bits << 28
        high = bits >>> 4
      } else high |= bits << (shift - 32)
      if (byte < 0x80) return [low >>> 0, high >>> 0]
    }
  }
}

/** A byte that says "not compressed", and the length. */
export const grpcHead: FrameHead = {
  bytes: 5,
  lengthOf(bytes, at) {
    if (bytes[at] !== 0) throw new MalformedError('a message is compressed, which was not asked for')
    return bytes.readUInt32BE(at + 1)
  },
}
