import assert from 'node:assert/strict'
import {
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { describe, test } from 'vitest'
import { SqliteRig } from '../../../../test/sqlite/rig.ts'
import { type ErrorCode, isHoldfastError } from '../../../base/errors.ts'
import { listAll } from '../../../kit/backend-kit.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { openSqlite, type SqliteOptions } from './assemble.ts'
import { checkOnePath } from './file-checks.ts'
import { sqlite } from './index.ts'
import { APPLICATION_ID, SCHEMA_VERSION } from './schema.ts'

const fixture = new URL('../../../../test/sqlite/fixtures/schema-1.sql', import.meta.url)

function throwsTyped(open: () => unknown, code: ErrorCode, says: RegExp): void {
  assert.throws(open, (error) => {
    assert(isHoldfastError(error, code), String(error))
    assert.match(error.message, says)
    return true
  })
}

describe('opening', () => {
  test('a missing folder is named', async () => {
    await using rig = new SqliteRig()
    const path = join(rig.folder, 'no', 'such', 'locks.db')
    throwsTyped(() => rig.open({ path }), 'INVALID_ARGUMENT', /create ".*such" first/)
    assert(!existsSync(path))
  })

  test('G1 a file with a second path is refused: it would have a second log, and every name two holders', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client)
    linkSync(rig.path, `${rig.path}.twin`)
    throwsTyped(() => rig.open(), 'UNSUPPORTED', /more than one path/)
    throwsTyped(() => rig.open({ path: `${rig.path}.twin` }), 'UNSUPPORTED', /mount the folder/)
    await assert.rejects(session.keepAlive({ held: [], waiting: [] }, call()), {
      code: 'BACKEND_UNAVAILABLE',
    })
    rmSync(`${rig.path}.twin`)
    rig.open()
    const mounts = `36 35 98:0 /x ${rig.path.replaceAll(' ', '\\040')} rw,noatime - ext4 /dev/root rw`
    throwsTyped(() => checkOnePath(rig.path, () => mounts), 'UNSUPPORTED', /itself is mounted/)
  })

  test('a folder in place of the file is refused', async () => {
    await using rig = new SqliteRig()
    mkdirSync(rig.path)
    throwsTyped(() => rig.open(), 'INVALID_ARGUMENT', /must name a file/)
  })

  test('nonsense options are refused, and so is a database that no other process could share', () => {
    const nonsense: unknown[] = [
      undefined,
      {},
      { path: '' },
      { path: 5 },
      { path: ':memory:' },
      { path: 'a\0b' },
      { path: 'locks.db', epoch: 2_048 },
      { path: 'locks.db', pollMs: 0 },
      { path: 'locks.db', pollMs: Number.NaN },
      { path: 'locks.db', synchronous: 'off' },
      { path: 'locks.db', namespace: 'a//b' },
      { path: 'locks.db', nameSpace: 'x' },
      { path: 'locks.db', machine: { bootId: '', timeNamespaceOffset: '0 0' } },
    ]
    for (const options of nonsense)
      throwsTyped(() => sqlite(options as SqliteOptions), 'INVALID_ARGUMENT', /./)
    assert(!existsSync('locks.db'))
  })

  test('a file that is no database is refused, and not touched', async () => {
    await using rig = new SqliteRig()
    for (const content of ['x', 'SQLite format 2', 'not a database\n'.repeat(1_000)]) {
      writeFileSync(rig.path, content)
      throwsTyped(() => rig.open(), 'UNSUPPORTED', /is not an SQLite database/)
      assert.equal(readFileSync(rig.path, 'utf8'), content)
    }
  })

  test("another program's database is refused, and not touched", async () => {
    await using rig = new SqliteRig()
    for (const prepare of ['', 'PRAGMA application_id = 7;', 'PRAGMA journal_mode = WAL;']) {
      rmSync(rig.path, { force: true })
      const theirs = new DatabaseSync(rig.path)
      theirs.exec(`${prepare} CREATE TABLE accounts (id INTEGER); PRAGMA user_version = ${SCHEMA_VERSION}`)
      theirs.close()
      const before = readFileSync(rig.path)
      throwsTyped(() => rig.open(), 'UNSUPPORTED', /of another program, and was left as it is/)
      assert.deepEqual(readFileSync(rig.path), before)
      assert(!existsSync(`${rig.path}-wal`) && !existsSync(`${rig.path}-shm`))
    }
  })

  test('a database that says it is ours and is not is refused', async () => {
    await using rig = new SqliteRig()
    const broken = Buffer.alloc(4_096, 'x')
    broken.write('SQLite format 3\0', 'latin1')
    broken.writeInt32BE(APPLICATION_ID, 68)
    writeFileSync(rig.path, broken)
    throwsTyped(() => rig.open(), 'UNSUPPORTED', /is not an SQLite database/)
  })

  test('an empty file becomes ours', async () => {
    await using rig = new SqliteRig()
    writeFileSync(rig.path, '')
    assert.deepEqual(await listAll(rig.open(), '', call()), [])
  })

  test('every shared file system is refused with the reason, and a local one is not', async () => {
    await using rig = new SqliteRig()
    const types = {
      NFS: 0x6969,
      CIFS: 0xff534d42,
      SMB: 0x517b,
      '9p': 0x01021997,
      Ceph: 0x00c36400,
      Lustre: 0x0bd00bd0,
      GPFS: 0x47504653,
      FUSE: 0x65735546,
      OCFS2: 0x7461636f,
      GFS2: 0x01161970,
      AFS: 0x5346414f,
    }
    const { path, clock, machine } = rig
    for (const [name, type] of Object.entries(types)) {
      const open = () => openSqlite({ path, clock, machine }, { fileSystemTypeOf: () => type })
      throwsTyped(open, 'UNSUPPORTED', new RegExp(`shared file system \\(${name}.*engine with a server`))
    }
    assert(!existsSync(path), 'nothing was created there')
    const ext4 = 0xef53
    const local = openSqlite({ path, clock, machine }, { fileSystemTypeOf: () => ext4 })
    await local[Symbol.asyncDispose]()
  })

  test('the path is taken literally, also when it looks like a URI or has quotes', async () => {
    await using rig = new SqliteRig()
    for (const name of ['file:x?mode=memory', "it's a file.db", 'ä 日本 🦀.db']) {
      const path = join(rig.folder, name)
      rig.open({ path })
      assert(existsSync(path), name)
    }
  })
})

describe('the layout', () => {
  test.each([SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])(
    'version %i is refused, with what to do',
    async (version) => {
      await using rig = new SqliteRig()
      rig.open()
      await rig.closeAll()
      rig.sql(`PRAGMA user_version = ${version}`)
      const says = new RegExp(`version ${version} of the layout.*knows version 1.*one release of Holdfast`)
      throwsTyped(() => rig.open(), 'UNSUPPORTED', says)
      assert.equal(rig.sql('PRAGMA user_version')[0]?.user_version, version)
    },
  )

  test('a file of version 1 opens: holders exclude, waiters keep their turn, tokens go on', async () => {
    await using rig = new SqliteRig()
    writeFixture(rig)
    const client = rig.open()
    const session = await client.openSession({ id: 'someone else', ttlMs: 5_000, holder: 'new' }, call())
    assert.equal((await session.tryAcquire(request('held'), call())).kind, 'busy')
    const taken = await session.tryAcquire(request('noted'), call())
    assert(taken.kind === 'granted')
    assert.equal(taken.grant.previousData, 'what the last holder left')
    assert.equal(taken.grant.token, 43n, 'the file says that 42 were given out')
    const [held] = await listAll(client, 'held', call())
    assert.deepEqual(
      [held?.holders, held?.waiters].map((all) => all?.map(({ id, holder }) => [id, holder])),
      [[['AAAAAAAAAAAAAAAAAAAAAA', 'old holder']], [['CCCCCCCCCCCCCCCCCCCCCC', 'old waiter']]],
    )
    const old = await client.attachSession({ id: 'session of the holder' }, call())
    const attempt = 'AAAAAAAAAAAAAAAAAAAAAA.BBBBBBBBBBBBBBBBBBBBBB'
    const claim = { name: 'held', attempt, grantId: String(held?.holders[0]?.token) }
    assert.equal(await old?.release(claim, { keepForMs: 0 }, call()), 'released')
    const [handedOver] = await listAll(client, 'held', call())
    assert.deepEqual(
      handedOver?.holders.map(({ id, token }) => [id, token]),
      [['CCCCCCCCCCCCCCCCCCCCCC', 44n]],
    )
  })

  test('what this release creates is version 1, to the letter: a change needs a new version', async () => {
    await using rig = new SqliteRig()
    const layout = () =>
      rig
        .sql("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name")
        .map((row) => ({ ...row, sql: String(row.sql).replace(/\s+/g, ' ') }))
    writeFixture(rig)
    const expected = layout()
    rmSync(rig.path)
    rig.open()
    assert.deepEqual(layout(), expected)
  })

  function writeFixture(rig: SqliteRig): void {
    const connection = new DatabaseSync(rig.path)
    connection.exec(readFileSync(fixture, 'utf8'))
    connection.close()
  }
})

describe('T71 the monotonic clock belongs to one boot', () => {
  test('what an earlier boot left is over, although its times lie ahead; data stays', async () => {
    await using rig = new SqliteRig()
    const before = await rig.session()
    const held = request('x', { lockDelayMs: 60_000 })
    await before.tryAcquire(held, call())
    await before.setData(held, 'for the next', call())
    enqueued(before, request('x'), call()).catch(() => {})
    const kept = request('kept')
    await before.tryAcquire(kept, call())
    await before.release(kept, { keepForMs: 600_000 }, call())
    await before.abandon(request('y'), call())
    await rig.restart()
    const after = await rig.session(rig.open({ clock: createFakeClock({ monotonicMs: 1 }) }))
    assert.deepEqual(rig.rows(), { sessions: 1, holders: 0, waiters: 0, marks: 0, names: 1 })
    const taken = await after.tryAcquire(request('x'), call())
    assert(taken.kind === 'granted' && taken.grant.previousData === 'for the next')
    assert.equal((await after.tryAcquire(request('kept'), call())).kind, 'granted')
    assert.equal(await rig.open().attachSession(before.handle, call()), null)
  })

  test('within one boot, opening the file leaves everything as it is', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session()
    await session.tryAcquire(request('x'), call())
    const before = rig.rows()
    rig.open()
    assert.deepEqual(rig.rows(), before)
  })

  test('another boot id while the file is open elsewhere is no restart, and is refused', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session()
    const held = request('x')
    await session.tryAcquire(held, call())
    const machine = { bootId: 'a container of its own', timeNamespaceOffset: '0 0' }
    const { path, clock } = rig
    const open = () => openSqlite({ path, clock, machine }, { patienceMs: 100 })
    throwsTyped(open, 'UNSUPPORTED', /shown another boot id/)
    const kept = await session.keepAlive({ held: [held], waiting: [] }, call())
    assert(kept.kind === 'alive' && kept.lost.length === 0)
  })

  test('another time namespace on the same boot is refused', async () => {
    await using rig = new SqliteRig()
    rig.open()
    const machine = { ...rig.machine, timeNamespaceOffset: '-86400 0' }
    throwsTyped(() => rig.open({ machine }), 'UNSUPPORTED', /time namespaces/)
    await rig.closeAll()
    throwsTyped(() => rig.open({ machine }), 'UNSUPPORTED', /time namespaces/)
    rig.open()
  })
})

describe('a file that is replaced while it is open', () => {
  const isNotApplied = (error: unknown) =>
    isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'not-applied'

  test('ends the sessions of processes that do not see the new one', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session()
    const held = request('x')
    await session.tryAcquire(held, call())
    for (const suffix of ['', '-wal', '-shm']) renameSync(rig.path + suffix, `${rig.path}.old${suffix}`)
    await assert.rejects(session.keepAlive({ held: [held], waiting: [] }, call()), isNotApplied)
    const newcomer = await rig.session()
    assert.equal((await newcomer.tryAcquire(request('x'), call())).kind, 'granted')
    await assert.rejects(session.keepAlive({ held: [held], waiting: [] }, call()), isNotApplied)
    const [old, young] = [rig.clients[0], rig.clients[1]]
    assert.notEqual(old?.info.issuer, young?.info.issuer, 'their tokens are not comparable')
  })

  for (const suffix of ['-wal', '-shm']) {
    const change = {
      removed: (file: string) => rmSync(file),
      'replaced by a copy': (file: string) => {
        renameSync(file, `${file}.old`)
        copyFileSync(`${file}.old`, file)
      },
    }
    for (const [how, act] of Object.entries(change))
      test(`T105 a ${suffix} file that is ${how} ends the sessions, and the error names it`, async () => {
        await using rig = new SqliteRig()
        const client = rig.open()
        const session = await rig.session(client)
        const held = request('x')
        await session.tryAcquire(held, call())
        act(rig.path + suffix)
        const says = (error: unknown) =>
          isNotApplied(error) &&
          (error as Error).message.includes(`locks.db${suffix} was removed or replaced`)
        await assert.rejects(session.keepAlive({ held: [held], waiting: [] }, call()), says)
        await assert.rejects(rig.session(client), says)
      })
  }

  test('T105 what SQLite itself does with -wal and -shm is no removal: others that come and go, a log that is cut', async () => {
    await using rig = new SqliteRig()
    rig.open()
    await rig.closeAll()
    assert.deepEqual(existsSync(`${rig.path}-wal`), false, 'the last one removes them')
    const client = rig.open()
    const session = await rig.session(client)
    const listed = { held: [], waiting: [] }
    assert.equal((await session.keepAlive(listed, call())).kind, 'alive')
    await rig.open()[Symbol.asyncDispose]()
    rig.sql('PRAGMA wal_checkpoint(TRUNCATE)')
    assert.equal((await session.keepAlive(listed, call())).kind, 'alive')
    await rig.closeAll()
    const link = join(rig.folder, 'link.db')
    symlinkSync(rig.path, link)
    const linked = await rig.session(rig.open({ path: link }))
    assert.equal((await linked.keepAlive(listed, call())).kind, 'alive')
    rmSync(`${rig.path}-wal`)
    await assert.rejects(linked.keepAlive(listed, call()), isNotApplied)
  })
})
