/**
 * Writes without pause until it is killed, and says after each answer what it was told:
 *
 *   + name token   granted
 *   ~ name         about to be released: from here on it may be there or not
 *   - name         released
 */
import { writeSync } from 'node:fs'
import { flushCompileCache } from 'node:module'
import { systemRandom } from '../../../src/base/ids.ts'
import { openSqlite } from '../../../src/engines/sqlite/locks/assemble.ts'
import type { GrantedClaim } from '../../../src/spi.ts'
import { call, request } from '../../../src/testing/conformance/requests.ts'

const [path = '', id = ''] = process.argv.slice(2)

// A pipe keeps what was written to it synchronously, also when the writer is killed right afterwards.
const say = (line: string) => writeSync(1, `${line}\n`)

// It is killed, and could not store at its end what was compiled for the next one.
flushCompileCache()

const backend = openSqlite({ path })
const session = await backend.openSession({ id: systemRandom.id(), ttlMs: 3_600_000, holder: id }, call())
const held: GrantedClaim[] = []

for (let index = 0; ; index++) {
  const asked = request(`${id}/${index}`)
  const result = await session.tryAcquire(asked, call())
  if (result.kind !== 'granted') throw new Error(`${asked.name} is ${result.kind}`)
  say(`+ ${asked.name} ${result.grant.token}`)
  held.push(result.grant)
  const oldest = held.length > 4 ? held.shift() : undefined
  if (oldest === undefined) continue
  say(`~ ${oldest.name}`)
  await session.release(oldest, { keepForMs: 0 }, call())
  say(`- ${oldest.name}`)
}
