/**
 * Layered defence: lock, guard, idempotency and reconciliation, what each of them catches, and what happens without it.
 *
 *     node examples/layered-defence/main.ts
 */
import { runExample } from '../support/example.ts'
import { bankTables } from './bank.ts'
import { liveThrough } from './day.ts'
import { deskTables, type Layer, layers } from './desk.ts'

const whatItCatches: Record<Layer, string> = {
  idempotency: 'a request that came again got the answer of the first',
  lock: 'a request that came at the same moment waited for its turn',
  guard: 'a write of somebody who had been overtaken was refused',
  reconciliation: 'a payout that a crash had left half done was settled',
}

await runExample({
  name: 'layered-defence',
  about: `A marketplace pays out what its sellers have earned. On a bad day requests come twice and at the same moment, a
holder of a lock hangs and is overtaken, and a process dies half way. Four layers of defence keep the money right. The
same day is lived through once with all of them, and once without each.`,
  async play({ url, pool, say, check, mustLose }) {
    await pool.query(deskTables)
    await pool.query(bankTables)

    say('A bad day, with all layers. This is how often each of them was needed:')
    const { caught, damage } = await liveThrough(url, pool)
    for (const layer of layers)
      check(`${layer.padEnd(14)} ${caught[layer]} × ${whatItCatches[layer]}`, caught[layer] > 0)
    check(
      `the audit finds ${damage.join('; ') || 'that everybody was paid what was due, once'}`,
      damage.length === 0,
    )

    say('\nThe same day, without one of them:')
    for (const layer of layers) {
      const without = await liveThrough(url, pool, layer)
      mustLose(
        `without ${layer}: ${without.damage.join('; ') || 'nothing happened'}`,
        without.damage.length > 0,
      )
    }
  },
})
