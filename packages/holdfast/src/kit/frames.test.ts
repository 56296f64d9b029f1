import { describe, expect, test } from 'vitest'
import { type FrameHead, Frames, MalformedError } from './frames.ts'

/** A byte that must be 0, and the length. */
const head: FrameHead = {
  bytes: 5,
  lengthOf(bytes, at) {
    if (bytes[at] !== 0) throw new MalformedError('a flag is set')
    return bytes.readUInt32BE(at + 1)
  },
}

function framed(length: number): Buffer {
  const bytes = Buffer.alloc(5 + length, 'm')
  bytes.writeUInt8(0, 0)
  bytes.writeUInt32BE(length, 1)
  return bytes
}

function cut(frames: Frames, bytes: Buffer, chunkBytes: number): string[] {
  const messages: string[] = []
  for (let at = 0; at < bytes.length; at += chunkBytes)
    for (const [from, start, end] of frames.take(bytes.subarray(at, at + chunkBytes)))
      messages.push(from.toString('utf8', start, end))
  return messages
}

describe('messages are cut from chunks of any size', () => {
  test.each([1, 3, 5, 7, 64, 1_000])('%i bytes at once', (chunkBytes) => {
    const lengths = [0, 1, 300, 0, 17, 4_096]
    const frames = new Frames(head)
    const messages = cut(frames, Buffer.concat(lengths.map(framed)), chunkBytes)
    expect(messages.map(({ length }) => length)).toEqual(lengths)
    expect(messages.join('')).toMatch(/^m*$/)
    expect(frames.isCut).toBe(false)
  })

  test('T100 a large message is copied a few times, however many chunks it has', () => {
    const frames = new Frames(head)
    const bytes = framed(8 * 2 ** 20)
    expect(cut(frames, bytes, 4_096)).toHaveLength(1)
    expect(frames.copied / bytes.length).toBeLessThan(4)
  })

  test('whole messages are not copied', () => {
    const frames = new Frames(head)
    expect(cut(frames, Buffer.concat([framed(10), framed(20)]), 1_000)).toHaveLength(2)
    expect(frames.copied).toBe(0)
  })

  test('T103 a message with a head that is not valid, or larger than any answer, is refused before it is collected', () => {
    const [flagged, huge] = [framed(3), framed(3)]
    flagged[0] = 1
    huge.writeUInt32BE(2 ** 31, 1)
    expect(() => cut(new Frames(head), flagged, 100)).toThrow('a flag')
    expect(() => cut(new Frames(head), huge, 100)).toThrow('bytes')
  })
})
