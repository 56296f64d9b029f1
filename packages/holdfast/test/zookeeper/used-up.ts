/**
 * A node whose sequence numbers are nearly used up, which takes two thousand million creates otherwise. ZooKeeper's log says for each
 * create how many children its parent has had. This writes another number there, as if they had been.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const HEADER_BYTES = 16
/** The end of a node's ACL; whether it is ephemeral; the number. */
const NUMBER_AFTER = Buffer.from('anyone')

/** Of a member that does not run. `child`: the beginning of the path of the children that were created. */
export function useUp(folder: string, child: string, count: number): void {
  const logs = join(folder, 'data/version-2')
  for (const name of readdirSync(logs).filter((file) => file.startsWith('log.'))) {
    const log = readFileSync(join(logs, name))
    for (let at = HEADER_BYTES; at + 12 <= log.length; ) {
      const length = log.readInt32BE(at + 8)
      if (length <= 0) break
      const entry = log.subarray(at + 12, at + 12 + length)
      for (let found = entry.indexOf(child); found >= 0; found = entry.indexOf(child, found + 1)) {
        const number = entry.indexOf(NUMBER_AFTER, found) + NUMBER_AFTER.length + 1
        // A deletion has no ACL, and is shorter.
        if (number > NUMBER_AFTER.length + 1 && number - found < 1_000) entry.writeInt32BE(count, number)
      }
      log.writeBigInt64BE(BigInt(adler32(entry)), at)
      at += 12 + length + 1
    }
    writeFileSync(join(logs, name), log)
  }
}

function adler32(bytes: Buffer): number {
  let [a, b] = [1, 0]
  for (const byte of bytes) {
    a = (a + byte) % 65_521
    b = (b + a) % 65_521
  }
  return b * 65_536 + a
}
