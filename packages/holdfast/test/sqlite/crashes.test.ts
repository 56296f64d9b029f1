import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { describe, onTestFinished, test } from 'vitest'
import { openSqlite } from '../../src/engines/sqlite/locks/assemble.ts'
import { createLocker } from '../../src/locker/locker.ts'
import { seededRandom } from '../../src/testing/seeded-random.ts'
import { newSeed } from '../seed.ts'
import { measureLag } from './workers/lag.ts'
import { start } from './workers/start.ts'

function freshFile(): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-crash-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return join(folder, 'locks.db')
}

function query(path: string, sql: string): Record<string, unknown>[] {
  const connection = new DatabaseSync(path)
  connection.exec('PRAGMA busy_timeout = 10000')
  try {
    const statement = connection.prepare(sql)
    statement.setReadBigInts(true)
    return statement.all()
  } finally {
    connection.close()
  }
}

describe('kill -9', () => {
  test('G10 G13 of a holder: the next waiter is granted when its time is up, and not before', async () => {
    const path = freshFile()
    const holder = start('hold.ts', path, 'x', 1_000)
    await holder.printed()
    const backend = openSqlite({ path })
    const locker = createLocker(backend, { ttlMs: 5_000 })
    const waiting = locker.acquire('x')
    // Meanwhile the holder renews; it is killed while there is a waiter.
    await new Promise((resolve) => setTimeout(resolve, 1_200))
    const lag = measureLag()
    holder.process.kill('SIGKILL')
    await holder.ended
    const [killed] = query(
      path,
      'SELECT s.expires_at, h.token FROM holders h JOIN sessions s ON s.no = h.session',
    )
    assert(killed !== undefined, 'it still holds until its time is up')

    const lease = await waiting
    // All times are what the engine recorded on the machine's clock; only its own lateness is excused.
    const [granted] = query(path, 'SELECT held_since, token FROM holders')
    const [expiredMs, grantedMs] = [Number(killed.expires_at), Number(granted?.held_since)]
    assert.equal(granted?.token, lease.fence.token)
    assert(lease.fence.token > BigInt(String(killed.token)))
    assert(grantedMs >= expiredMs, `${expiredMs - grantedMs} ms early (G13)`)
    const allowedMs = backend.info.expirySlackMs(1_000) + lag.stop()
    assert(grantedMs - expiredMs <= allowedMs, `${grantedMs - expiredMs} ms late, of ${allowedMs} ms (G10)`)
    await locker.close()
  })

  test('G10 T20 of waiters: the living one behind them is granted at the release plus one TTL at most', async () => {
    const path = freshFile()
    const backend = openSqlite({ path })
    const locker = createLocker(backend, { ttlMs: 60_000 })
    const held = await locker.acquire('x')
    const doomed = [start('hold.ts', path, 'x', 1_000), start('hold.ts', path, 'x', 1_000)]
    await eventually(() => query(path, 'SELECT 1 FROM waiters').length === 2)
    const waiting = locker.acquire('x')
    await eventually(() => query(path, 'SELECT 1 FROM waiters').length === 3)
    for (const worker of doomed) worker.process.kill('SIGKILL')
    await Promise.all(doomed.map((worker) => worker.ended))
    const lag = measureLag()
    await held.release()
    const [last] = query(path, 'SELECT max(expires_at) AS ms FROM sessions WHERE ttl_ms = 1000.0')
    const lease = await waiting
    const [granted] = query(path, 'SELECT held_since FROM holders')
    const lateMs = Number(granted?.held_since) - Number(last?.ms)
    const allowedMs = backend.info.expirySlackMs(1_000) + lag.stop()
    assert(lateMs <= allowedMs, `${lateMs} ms late, of ${allowedMs} ms`)
    assert.deepEqual(query(path, 'SELECT 1 FROM waiters'), [])
    await lease.release()
    await locker.close()
  })

  test('G2 T38 200 times in the midst of writing: the file is whole, nothing acknowledged is lost, no token repeats', async () => {
    const path = freshFile()
    const kills = 200
    const seed = newSeed()
    console.log(`kill -9 with seed ${seed}`)
    const random = seededRandom(seed)
    const killAfterMs = Array.from({ length: kills }, () => random.fraction() * 12)
    const atOnce = 4
    let started = 0
    const outputs: (readonly string[])[] = []
    const lane = async () => {
      while (started < kills) {
        const number = started++
        const worker = start('write.ts', path, `w${number}`)
        await worker.printed()
        await new Promise((resolve) => setTimeout(resolve, killAfterMs[number]))
        worker.process.kill('SIGKILL')
        outputs.push(await worker.ended)
        const [check] = query(path, 'PRAGMA integrity_check')
        assert.equal(check?.integrity_check, 'ok')
      }
    }
    await Promise.all(Array.from({ length: atOnce }, lane))

    const found = new Map(query(path, 'SELECT name, token FROM holders').map((row) => [row.name, row.token]))
    const seen = new Set<string>()
    let releases = 0
    for (const output of outputs) {
      const { held, released, undecided, tokens } = acknowledged(output)
      for (const [name, token] of held)
        assert.equal(found.get(name), BigInt(token), `${name} was granted and is gone`)
      for (const name of released) assert(!found.has(name), `${name} was released and is back`)
      for (const name of [...held.keys(), ...undecided]) found.delete(name)
      tokens.reduce((before, token) => {
        assert(BigInt(token) > BigInt(before), `token ${token} after ${before}`)
        return token
      }, '0')
      for (const token of tokens) {
        assert(!seen.has(token), `token ${token} was given out twice`)
        seen.add(token)
      }
      releases += released.length
    }
    // Claims that are left were granted, but their processes were killed before they could say so: at most one each.
    assert(found.size <= kills, `${found.size} holders that nobody knows`)
    assert(seen.size > kills * 2 && releases > kills, 'they were killed while they were busy')

    const locker = createLocker(openSqlite({ path }))
    const next = await locker.acquire('afterwards')
    for (const token of seen) assert(next.fence.token > BigInt(token))
    await locker.close()
    console.log(
      `${kills} kills, ${seen.size} grants and ${releases} releases acknowledged, ${found.size} untold`,
    )
  }, 600_000)
})

/** Grants that a worker said it was told. */
function acknowledged(lines: readonly string[]) {
  const held = new Map<string, string>()
  const released: string[] = []
  const undecided = new Set<string>()
  const tokens: string[] = []
  for (const line of lines) {
    const [what, name = '', token = ''] = line.split(' ')
    if (what === '+') {
      held.set(name, token)
      tokens.push(token)
    } else if (what === '~') {
      held.delete(name)
      undecided.add(name)
    } else {
      undecided.delete(name)
      released.push(name)
    }
  }
  return { held, released, undecided, tokens }
}

async function eventually(holds: () => boolean): Promise<void> {
  for (let turn = 0; !holds(); turn++) {
    assert(turn < 1_000, 'in vain')
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
