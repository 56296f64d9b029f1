import assert from 'node:assert/strict'
import { chmodSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'vitest'
import { SqliteRig } from '../../../../test/sqlite/rig.ts'
import { createLocker } from '../../../locker/locker.ts'
import { call } from '../../../testing/conformance/requests.ts'
import type { SqliteBackend } from './backend.ts'
import { type Diagnosed, diagnose } from './diagnosis.ts'

const ext4 = 0xef53
const local = { fileSystemTypeOf: () => ext4 }

async function codes(client: SqliteBackend): Promise<string[]> {
  return (await client.diagnose(call())).map(({ code, severity }) => `${severity} ${code}`).sort()
}

describe('a diagnosis', () => {
  test('of a file on a local disk has nothing but what a power failure may undo', async () => {
    await using rig = new SqliteRig()
    const client = rig.open({}, local)
    assert.deepEqual(await codes(client), ['note HOLDFAST_SQLITE_SYNCHRONOUS'])
    assert.deepEqual(await codes(rig.open({ synchronous: 'full' }, local)), [])
    const [finding] = await createLocker(client).diagnose()
    assert(finding !== undefined)
    for (const text of [finding.what, finding.why, finding.fix]) assert.match(text, /^[A-Z].*\.$/)
  })

  test.runIf(process.platform === 'linux')('names a file system that forgets', async () => {
    await using rig = new SqliteRig()
    for (const type of [0x01021994, 0x794c7630]) {
      const client = rig.open({ synchronous: 'full' }, { fileSystemTypeOf: () => type })
      assert.deepEqual(await codes(client), ['warning HOLDFAST_SQLITE_VOLATILE'])
    }
  })

  test('says that the file was replaced, in the words of the renewals that fail', async () => {
    await using rig = new SqliteRig()
    const client = rig.open({ synchronous: 'full' }, local)
    const session = await rig.session(client)
    renameSync(rig.path, `${rig.path}.old`)
    const [finding] = await client.diagnose(call())
    assert.equal(finding?.code, 'HOLDFAST_SQLITE_FILE_REPLACED')
    assert.match(finding.what, /was removed or replaced/)
    await assert.rejects(session.keepAlive({ held: [], waiting: [] }, call()), /was removed or replaced/)
  })

  test('T105 says that the -wal file was removed, and to raise the epoch', async () => {
    await using rig = new SqliteRig()
    const client = rig.open({ synchronous: 'full' }, local)
    assert.deepEqual(await codes(client), [])
    rmSync(`${rig.path}-wal`)
    const [finding] = await client.diagnose(call())
    assert.deepEqual([finding?.severity, finding?.code], ['danger', 'HOLDFAST_SQLITE_FILE_REPLACED'])
    assert.match(String(finding?.what), /locks\.db-wal was removed or replaced/)
    assert.match(String(finding?.fix), /epoch/)
  })

  test('says that waiters have to poll', async () => {
    await using rig = new SqliteRig()
    writeFileSync(join(rig.folder, 'taken'), '')
    const socketFolder = join(rig.folder, 'taken')
    const client = rig.open({ synchronous: 'full' }, { ...local, socketFolder })
    assert.deepEqual(await codes(client), ['note HOLDFAST_SQLITE_NO_WAKE_UPS'])
  })

  test.runIf(process.platform !== 'win32')('sees who else may write', async () => {
    await using rig = new SqliteRig()
    const client = rig.open({ synchronous: 'full' }, local)
    await rig.session(client)
    chmodSync(rig.path, 0o666)
    assert.deepEqual(await codes(client), ['warning HOLDFAST_SQLITE_PERMISSIONS'])
    chmodSync(rig.path, 0o644)
    chmodSync(rig.folder, 0o777)
    assert.deepEqual(await codes(client), ['warning HOLDFAST_SQLITE_PERMISSIONS'])
    chmodSync(rig.folder, 0o1777)
    assert.deepEqual(await codes(client), [])
  })

  test('knows the releases of SQLite that have the WAL-reset bug', async () => {
    await using rig = new SqliteRig()
    const file: Omit<Diagnosed, 'sqliteVersion'> = {
      ...local,
      path: rig.path,
      synchronous: 'full',
      problem: null,
      hears: true,
      pollMs: 1,
    }
    for (const [sqliteVersion, count] of [
      ['3.46.1', 1],
      ['3.51.2', 1],
      ['3.51.3', 0],
      ['3.53.0', 0],
      ['4.0.0', 0],
    ] as const)
      assert.equal((await diagnose({ ...file, sqliteVersion })).length, count, sqliteVersion)
  })
})
