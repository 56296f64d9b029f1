/**
 * The password of a session. ZooKeeper computes it from the session's id with a constant that everybody knows (`generatePasswd`), as 16
 * bytes of Java's `Random`. So a session's id is all that another process needs to go on with it, and the password keeps nobody out.
 */

const SECRET = 0xb3415c00n
const MULTIPLIER = 0x5deece66dn
const MASK_48 = (1n << 48n) - 1n

export function passwordOf(id: bigint): Buffer {
  const password = Buffer.alloc(16)
  let seed = (id ^ SECRET ^ MULTIPLIER) & MASK_48
  for (let at = 0; at < password.length; at += 4) {
    seed = (seed * MULTIPLIER + 0xbn) & MASK_48
    password.writeInt32LE(Number(BigInt.asIntN(32, seed >> 16n)), at)
  }
  return password
}
