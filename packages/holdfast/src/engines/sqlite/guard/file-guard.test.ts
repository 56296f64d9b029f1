import assert from 'node:assert/strict'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, test } from 'vitest'
import { fence } from '../../../../test/guard-table.ts'
import { describeGuard, type GuardWorld } from '../../../testing/describe-guard.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { type FileGuard, type Files, fileGuard } from './file-guard.ts'

const folders: string[] = []
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true })
})

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-files-'))
  folders.push(folder)
  return folder
}

const stored = (folder: string, file: string) =>
  existsSync(join(folder, file)) ? readFileSync(join(folder, file), 'utf8') : undefined
const textOf = (bytes: Uint8Array | null) => (bytes === null ? undefined : Buffer.from(bytes).toString())
const stagedIn = (folder: string) =>
  readdirSync(join(folder, '.holdfast')).filter((name) => name.startsWith('.t'))

async function createWorld(): Promise<GuardWorld<Files>> {
  const folder = newFolder()
  const clock = createFakeClock()
  let guards: FileGuard[] = []
  const closeAll = async () => {
    for (const guard of guards) await guard.close()
    guards = []
  }
  return {
    async guard(options) {
      const guard = fileGuard({ ...options, folder, clock })
      guards.push(guard)
      return guard
    },
    read: async (files, key) => textOf(await files.read(key)),
    write: (files, key, value) => files.write(key, value),
    stored: async (key) => stored(folder, key),
    transaction: async (_guard, body) => body({} as Files),
    outsideTransaction: async () => ({}) as Files,
    passTime: (ms) => clock.advance(ms),
    reopen: closeAll,
    close: closeAll,
  }
}

const noTransaction =
  'renames are no transaction of the user’s: `enter` is UNSUPPORTED, and all proofs go to `run` at once'
describeGuard({
  name: 'fileGuard',
  describe,
  test,
  createWorld,
  except: ['D110', 'D111', 'D112', 'D113', 'D114', 'D115', 'D116', 'D130'].map((rule) => ({
    rule,
    why: noTransaction,
  })),
})

describe('fileGuard', () => {
  test('several files of one run are written, with their permissions, and nothing is left beside them', async () => {
    const folder = newFolder()
    mkdirSync(join(folder, 'sub'))
    writeFileSync(join(folder, 'a'), 'old', { mode: 0o640 })
    await using guard = fileGuard({ folder })
    await guard.run(fence(1n), async (files) => {
      await files.write('a', 'first try')
      await files.write('a', 'new')
      await files.write('sub/b', new Uint8Array([1, 2]))
      assert.equal(textOf(await files.read('a')), 'new')
      assert.equal(await files.read('none'), null)
      assert.equal(stored(folder, 'a'), 'old')
    })
    assert.deepEqual([stored(folder, 'a'), stored(folder, 'sub/b')], ['new', '\x01\x02'])
    assert.deepEqual(stagedIn(folder), [])
  })

  test('T40 a read shuts out an older holder, also one that has staged its write', async () => {
    const folder = newFolder()
    await using old = fileGuard({ folder })
    await using young = fileGuard({ folder })
    const stale = old.run(fence(1n), async (files) => {
      await files.write('a', 'stale')
      await young.run(fence(2n), (of) => of.read('a'))
    })
    await assert.rejects(stale, { code: 'FENCE_STALE' })
    assert.equal(stored(folder, 'a'), undefined)
    assert.deepEqual(stagedIn(folder), [])
  })

  test('what was read is of one state: a newer holder, or another run of the same, is noticed', async () => {
    const folder = newFolder()
    await using one = fileGuard({ folder })
    await using two = fileGuard({ folder })
    const during = (writer: bigint, write: string | null) =>
      one.run(fence(5n), async (files) => {
        await files.read('a')
        await two.run(fence(writer), (of) => of.write('a', 'meanwhile'))
        if (write !== null) await files.write('a', write)
      })
    await assert.rejects(during(5n, 'lost update'), { code: 'CONFLICT' })
    await assert.rejects(during(5n, null), { code: 'CONFLICT' })
    assert.equal(stored(folder, 'a'), 'meanwhile')
    await assert.rejects(during(6n, null), { code: 'FENCE_STALE' })
  })

  test('reads at once are one look, and reads and writes that are not awaited belong to the run', async () => {
    const folder = newFolder()
    mkdirSync(join(folder, 'sub'))
    writeFileSync(join(folder, 'a'), 'old a')
    writeFileSync(join(folder, 'b'), 'old b')
    await using guard = fileGuard({ folder })
    const seen = await guard.run(fence(1n), async (files) => {
      const both = await Promise.all([files.read('a'), files.read('b')])
      void files.write('a', 'first')
      void files.write('a', 'x'.repeat(1_000_000))
      void files.write('a', 'last')
      void files.write('sub/c', 'new')
      assert.equal(textOf(await files.read('a')), 'last')
      void files.read('b')
      return both.map(textOf)
    })
    assert.deepEqual(seen, ['old a', 'old b'])
    assert.deepEqual([stored(folder, 'a'), stored(folder, 'sub/c')], ['last', 'new'])
    assert.deepEqual(stagedIn(folder), [])
  })

  test('a write that fails fails its run, whether it is awaited or not, and leaves nothing behind', async () => {
    const folder = newFolder()
    await using guard = fileGuard({ folder })
    const failing: ((files: Files) => unknown)[] = [
      (files) => void files.write('../a', 'x'),
      (files) => void files.write('a', 5 as never),
      (files) => files.write('../a', 'x').catch(() => {}),
    ]
    for (const fails of failing) {
      const run = guard.run(fence(1n), async (files) => {
        await files.write('b', 'with it')
        await fails(files)
      })
      await assert.rejects(run, { code: 'INVALID_ARGUMENT' })
    }
    const thrown = guard.run(fence(1n), async (files) => {
      void files.write('b', 'x'.repeat(1_000_000))
      throw new Error('of the effect')
    })
    await assert.rejects(thrown, /of the effect/)
    assert.deepEqual([stored(folder, 'a'), stored(folder, 'b')], [undefined, undefined])
    assert.deepEqual(stagedIn(folder), [])
  })

  test('two paths to one file are one file', async () => {
    const folder = newFolder()
    mkdirSync(join(folder, 'sub'))
    symlinkSync(join(folder, 'sub'), join(folder, 'link'))
    await using guard = fileGuard({ folder })
    const seen = await guard.run(fence(1n), async (files) => {
      await files.write('sub/x', 'first')
      await files.write('link/../link/x', 'second')
      await files.write('./sub/x', 'third')
      return textOf(await files.read('link/x'))
    })
    assert.deepEqual([seen, stored(folder, 'sub/x')], ['third', 'third'])
  })

  test('T105 marks that were removed under an open guard let nobody pass', async () => {
    const folder = newFolder()
    await using old = fileGuard({ folder })
    await old.run(fence(1n), (files) => files.write('a', '1'))
    rmSync(join(folder, '.holdfast'), { recursive: true })
    await using young = fileGuard({ folder })
    await young.run(fence(2n), (files) => files.write('a', '2'))
    const replaced = { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied', message: /removed or replaced/ }
    await assert.rejects(
      old.run(fence(1n), (files) => files.write('a', 'stale')),
      replaced,
    )
    await assert.rejects(
      old.run(fence(3n), (files) => files.read('a')),
      replaced,
    )
    assert.equal(stored(folder, 'a'), '2')
  })

  test('an abort in an effect ends the run, also one that has only read', async () => {
    const folder = newFolder()
    await using guard = fileGuard({ folder })
    for (const work of ['read', 'write'] as const) {
      const stop = new AbortController()
      const run = guard.run(
        fence(1n),
        async (files) => {
          await files[work]('a', 'x')
          stop.abort(new Error('stopped'))
        },
        { signal: stop.signal },
      )
      await assert.rejects(run, /stopped/)
      assert.equal(stored(folder, 'a'), undefined)
    }
  })

  test('files of a run that is over are refused', async () => {
    await using guard = fileGuard({ folder: newFolder() })
    const leaked = await guard.run(fence(1n), (files) => files)
    await assert.rejects(leaked.read('a'), { code: 'INVALID_ARGUMENT', message: /over/ })
    await assert.rejects(leaked.write('a', 'x'), { code: 'INVALID_ARGUMENT', message: /over/ })
  })

  test('close inside an effect is refused, and the guard closes afterwards', async () => {
    const guard = fileGuard({ folder: newFolder() })
    await guard.run(fence(1n), async () => {
      await assert.rejects(guard.close(), { code: 'INVALID_ARGUMENT' })
    })
    await guard.run(fence(1n), () => {})
    await guard.close()
    await guard.close()
    await assert.rejects(
      guard.run(fence(1n), () => {}),
      { code: 'CLOSED' },
    )
  })

  test('a frozen effect blocks nobody', async () => {
    const folder = newFolder()
    await using frozen = fileGuard({ folder })
    await using other = fileGuard({ folder })
    const gate = Promise.withResolvers<void>()
    const run = frozen.run(fence(1n), async (files) => {
      await files.write('a', 'late')
      await gate.promise
    })
    await other.run(fence(2n), (files) => files.write('a', 'newer'))
    gate.resolve()
    await assert.rejects(run, { code: 'FENCE_STALE' })
    assert.equal(stored(folder, 'a'), 'newer')
  })

  test.each([undefined, Number.POSITIVE_INFINITY])(
    'staged files of the dead go after a day, and those of others stay, with forgetAfterMs %s',
    async (forgetAfterMs) => {
      const folder = newFolder()
      await (await fileGuard({ folder })).close()
      for (const [name, ageS] of [
        ['.told', 90_000],
        ['.tyoung', 60],
      ] as const) {
        writeFileSync(join(folder, '.holdfast', name), 'x')
        utimesSync(join(folder, '.holdfast', name), Date.now() / 1_000 - ageS, Date.now() / 1_000 - ageS)
      }
      await using guard = fileGuard({ folder, ...(forgetAfterMs && { forgetAfterMs }) })
      await guard.run(fence(1n), () => {})
      assert.deepEqual(stagedIn(folder), ['.tyoung'])
    },
  )

  test('a path outside of the folder, or that leads out of it, is refused', async () => {
    const folder = newFolder()
    const outside = newFolder()
    symlinkSync(outside, join(folder, 'link'))
    symlinkSync(join(outside, 'file'), join(folder, 'file'))
    mkdirSync(join(folder, 'sub'))
    mkdirSync(join(folder, '.HOLDFAST'), { recursive: true })
    await using guard = fileGuard({ folder })
    const bad = [
      '',
      '.',
      '..',
      '../x',
      '/etc/passwd',
      'sub',
      'sub/..',
      'link/x',
      'file',
      'none/x',
      'a\0b',
      '.holdfast/marks.db',
      '.holdfast/x',
      '.HOLDFAST/x',
      'sub/../../x',
      5,
    ]
    for (const path of bad) {
      const refused = { code: 'INVALID_ARGUMENT' }
      await assert.rejects(
        guard.run(fence(1n), (files) => files.write(path as string, 'x')),
        refused,
        String(path),
      )
      await assert.rejects(
        guard.run(fence(1n), (files) => files.read(path as string)),
        refused,
        String(path),
      )
    }
    await assert.rejects(
      guard.run(fence(1n), (files) => files.write('a', 5 as never)),
      { code: 'INVALID_ARGUMENT' },
    )
    assert.deepEqual(readdirSync(outside), [])
    assert.throws(() => fileGuard({ folder, path: 'x' } as never), { code: 'INVALID_ARGUMENT' })
    assert.throws(() => fileGuard({ folder: join(folder, 'none') }), { code: 'INVALID_ARGUMENT' })
    await assert.rejects(guard.enter({} as Files, fence(1n)), { code: 'UNSUPPORTED' })
    await guard.close()
    await assert.rejects(
      guard.run(fence(1n), () => {}),
      { code: 'CLOSED' },
    )
  })
})
