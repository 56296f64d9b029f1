/**
 * Which of the 16,384 slots of a Redis Cluster a key belongs to: CRC16 (XMODEM) of its hash tag, or of the whole key
 * when it has none.
 */
const SLOTS = 16_384
const POLYNOMIAL = 0x1021

const table = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ POLYNOMIAL : crc << 1
  return crc & 0xffff
})

export function slotOf(key: string): number {
  let crc = 0
  for (const byte of Buffer.from(hashTagOf(key) ?? key))
    crc = ((crc << 8) & 0xffff) ^ (table[(crc >> 8) ^ byte] ?? 0)
  return crc % SLOTS
}

/** The text between the first `{` and the next `}`, if there is some. */
export function hashTagOf(key: string): string | null {
  const start = key.indexOf('{')
  if (start === -1) return null
  const end = key.indexOf('}', start + 1)
  return end > start + 1 ? key.slice(start + 1, end) : null
}
