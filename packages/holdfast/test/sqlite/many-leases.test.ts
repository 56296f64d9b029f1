import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, onTestFinished, test } from 'vitest'
import { defaults } from '../../src/base/defaults.ts'
import type { FencedLease } from '../../src/base/types.ts'
import { openSqlite } from '../../src/engines/sqlite/locks/assemble.ts'
import { createLocker } from '../../src/locker/locker.ts'

const LEASES = 10_000
const RENEWALS = 5

describe('10,000 leases held by one process', () => {
  test('are renewed by one transaction of the same three statements as one lease, and leave the event loop free', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-many-'))
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
    const backend = openSqlite({ path: join(folder, 'locks.db') })
    const locker = createLocker(backend)

    const first = await locker.acquire('first')
    const one = await costOfRenewing(first)
    const others = await Promise.all(
      Array.from({ length: LEASES - 1 }, (_, index) => locker.acquire(`${index}`, { waitMs: 300_000 })),
    )
    const all = await costOfRenewing(first)

    assert.deepEqual([one.transactions, one.statements], [1, 3])
    assert.deepEqual([all.transactions, all.statements], [1, 3])
    assert(
      [first, ...others].every((lease) => lease.state === 'held'),
      'all are held',
    )
    // Whatever is not spent on the keep-alive, from one to the next, is free for others.
    const intervalMs = defaults.ttlMs / defaults.renewalsPerTtl
    const share = (all.workMs - one.workMs) / intervalMs
    assert(share < 0.1, `${all.workMs} ms of work in each interval of ${intervalMs} ms`)
    console.log(
      `a renewal of ${LEASES} leases: ${all.workMs.toFixed(1)} ms of work, ${percent(share)} of the time`,
    )
    await locker.close()

    async function costOfRenewing(lease: FencedLease) {
      const before = { ...backend.statistics }
      // Time on a processor, and not on the wall: a busy machine must not count against us.
      const began = process.cpuUsage()
      for (let renewal = 0; renewal < RENEWALS; renewal++) await lease.renew()
      const { user, system } = process.cpuUsage(began)
      return {
        workMs: (user + system) / 1_000 / RENEWALS,
        transactions: (backend.statistics.transactions - before.transactions) / RENEWALS,
        statements: (backend.statistics.statements - before.statements) / RENEWALS,
      }
    }
  }, 600_000)
})

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`
}
