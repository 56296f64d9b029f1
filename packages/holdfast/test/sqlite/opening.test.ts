import assert from 'node:assert/strict'
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, onTestFinished, test } from 'vitest'
import { isHoldfastError } from '../../src/base/errors.ts'
import { openSqlite } from '../../src/engines/sqlite/locks/assemble.ts'
import { listAll } from '../../src/kit/backend-kit.ts'
import { createLocker } from '../../src/locker/locker.ts'
import { call } from '../../src/testing/conformance/requests.ts'
import { start } from './workers/start.ts'

function freshFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-opening-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

describe('opening by several processes', () => {
  test('six that create one file at once all get the same one', async () => {
    const path = join(freshFolder(), 'locks.db')
    const workers = Array.from({ length: 6 }, (_, index) => start('open.ts', path, `item ${index}`))
    const lines = (await Promise.all(workers.map((worker) => worker.ended))).flat()
    const [tokens, issuers] = [0, 1].map((at) =>
      lines.map((line) => line.replace('token ', '').split(' of ')[at]),
    )
    assert.deepEqual(tokens?.sort(), ['1', '2', '3', '4', '5', '6'])
    assert.equal(new Set(issuers).size, 1)
  })
})

describe.runIf(process.platform === 'linux')('two clients in one process', () => {
  test("the second does not take away the first one's locks on the file", async () => {
    const path = join(freshFolder(), 'locks.db')
    const { ino } = createFile(path)
    // When a process closes any descriptor of a file, the system drops all locks that the process has on the file. A
    // neighbour could then believe to be alone with it.
    const locks = () =>
      readFileSync('/proc/locks', 'utf8')
        .split('\n')
        .filter((line) => line.includes(` ${process.pid} `) && line.includes(`:${ino} `))
    await using first = openSqlite({ path })
    assert.equal(locks().length, 1)
    await using second = openSqlite({ path })
    await listAll(first, '', call())
    await listAll(second, '', call())
    assert.equal(locks().length, 1)
  })

  function createFile(path: string): Stats {
    writeFileSync(path, '')
    return statSync(path)
  }
})

describe('opening without the right to write', () => {
  // Root may write everywhere, so another user is sent.
  const stranger = process.getuid?.() === 0 ? '65534' : ''

  test('a read-only file is refused', async () => {
    const folder = freshFolder()
    const path = join(folder, 'locks.db')
    await openSqlite({ path })[Symbol.asyncDispose]()
    chmodSync(folder, 0o777)
    chmodSync(path, 0o444)
    const before = statSync(path)
    const [said = ''] = await start('open.ts', path, 'x', stranger).ended
    assert.match(said, /^UNSUPPORTED sqlite: ".*locks\.db" cannot be written by this process/)
    assert.equal(statSync(path).mtimeMs, before.mtimeMs)
  })

  test('a file in a read-only folder is refused, and so is a new one there', async () => {
    const folder = join(freshFolder(), 'inside')
    mkdirSync(folder)
    const path = join(folder, 'locks.db')
    await openSqlite({ path })[Symbol.asyncDispose]()
    chmodSync(path, 0o666)
    chmodSync(join(folder, '..'), 0o755)
    chmodSync(folder, 0o555)
    for (const each of [path, join(folder, 'new.db')]) {
      const [said = ''] = await start('open.ts', each, 'x', stranger).ended
      assert.match(said, /^UNSUPPORTED sqlite: ".*inside" cannot be written by this process/)
    }
    chmodSync(folder, 0o755)
  })
})

describe('a log that is removed while processes use it', () => {
  test('T105 G2 the old holder loses its lease and is told why; a newcomer may have its token meanwhile', async () => {
    const path = join(freshFolder(), 'locks.db')
    await using old = createLocker(openSqlite({ path }), { ttlMs: 1_000 })
    const lease = await old.acquire('x')
    for (const suffix of ['-wal', '-shm']) rmSync(path + suffix)
    const [told = ''] = await start('open.ts', path, 'x').ended
    assert.equal(told, `token ${lease.fence.token} of ${lease.fence.issuer}`, 'the newcomer cannot know')
    if (!lease.signal.aborted)
      await new Promise((resolve) => lease.signal.addEventListener('abort', resolve, { once: true }))
    const { reason } = lease.signal
    assert(isHoldfastError(reason, 'LEASE_LOST') && reason.reason === 'unreachable', String(reason))
    assert.match(reason.message, /locks\.db-wal was removed or replaced/)
    await assert.rejects(old.tryAcquire('y'), /locks\.db-wal was removed or replaced/)
    assert.match(String((await old.diagnose())[0]?.what), /locks\.db-wal was removed or replaced/)
  })

  test('T105 G2 an old process that is closed later does not remove the log of newcomers, nor write its own over it', async () => {
    const path = join(freshFolder(), 'locks.db')
    const old = createLocker(openSqlite({ path }), { ttlMs: 1_000 })
    await (await old.acquire('x')).release()
    for (const suffix of ['-wal', '-shm']) rmSync(path + suffix)
    const newcomer = async () =>
      /^token (\d+)/.exec(String((await start('open.ts', path, 'x').ended)[0]))?.[1]
    const tokens = [await newcomer(), await newcomer()]
    await old.close()
    tokens.push(await newcomer())
    assert.deepEqual(tokens, ['1', '2', '3'])
  })
})
