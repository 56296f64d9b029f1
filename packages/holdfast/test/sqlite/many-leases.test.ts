import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, onTestFinished, test } from 'vitest'
import { openSqlite } from '../../src/backends/sqlite/assemble.ts'
import { createLocker } from '../../src/core/locker.ts'

const LEASES = 10_000
const TTL_MS = 3_000
/** Acquired together; all at once would starve the renewals of a TTL that is so short. */
const CHUNK = 250

describe('10,000 leases held by one process', () => {
  test('cost one keep-alive per interval, of the same three statements as one lease, and leave the event loop free', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-many-'))
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
    const backend = openSqlite({ path: join(folder, 'locks.db') })
    const locker = createLocker(backend, { ttlMs: TTL_MS })

    const first = await locker.acquire('first')
    const withOne = await watchFor(2 * TTL_MS)
    const leases = [first]
    while (leases.length < LEASES) {
      const names = Array.from(
        { length: Math.min(CHUNK, LEASES - leases.length) },
        (_, at) => `${leases.length + at}`,
      )
      leases.push(...(await Promise.all(names.map((name) => locker.acquire(name)))))
    }
    const withAll = await watchFor(2 * TTL_MS)

    assert(
      leases.every((lease) => lease.state === 'held'),
      'all are still held',
    )
    for (const { keepAlives, statements } of [withOne, withAll]) {
      // Every third of the TTL, give or take a tenth and what the machine is late by.
      assert(keepAlives >= 3 && keepAlives <= 8, `${keepAlives} keep-alives in 2 TTLs`)
      assert.equal(statements, 3 * keepAlives)
    }
    // Everything here runs on the event loop, so what of the time is not spent on the leases is free for others.
    assert(withAll.workShare < 0.25, `busy for ${percent(withAll.workShare)} of the time`)
    console.log(
      `busy for ${percent(withOne.workShare)} of the time with one lease, ` +
        `for ${percent(withAll.workShare)} with ${LEASES}, at a TTL of ${TTL_MS} ms`,
    )
    await locker.close()

    async function watchFor(ms: number) {
      const before = { ...backend.statistics }
      const [cpuBefore, beganMs] = [process.cpuUsage(), performance.now()]
      await new Promise((resolve) => setTimeout(resolve, ms))
      const { transactions, statements } = backend.statistics
      const { user, system } = process.cpuUsage(cpuBefore)
      return {
        // Time on a processor, and not on the wall: a busy machine must not count against us.
        workShare: (user + system) / 1_000 / (performance.now() - beganMs),
        keepAlives: transactions - before.transactions,
        statements: statements - before.statements,
      }
    }
  }, 60_000)
})

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`
}
