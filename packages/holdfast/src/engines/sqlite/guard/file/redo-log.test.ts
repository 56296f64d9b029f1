import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, test } from 'vitest'
import { fence } from '../../../../../test/guard-table.ts'
import { checkGuardOptions } from '../../../../guards/settings.ts'
import { GuardedFolder } from './folder.ts'
import { openFileGuard } from './guard.ts'

const root = mkdtempSync(join(tmpdir(), 'holdfast-redo-'))
afterAll(() => rmSync(root, { recursive: true }))

/** A guard that fails at a step, as if its process had died there, but for what it cleans up. */
function openGuard(folder: string, failsAt?: string) {
  const onStep = (step: string) => {
    if (step === failsAt) throw new Error(`planted at ${step}`)
  }
  return openFileGuard(new GuardedFolder(folder, onStep), checkGuardOptions({}))
}

async function failAt(step: string) {
  const folder = mkdtempSync(join(root, 'files-'))
  await using sound = openGuard(folder)
  await sound.run(fence(1n), (files) => files.write('a', '1'))
  await using failing = openGuard(folder, step)
  await assert.rejects(
    failing.run(fence(2n), (files) => files.write('a', '2')),
    /planted/,
  )
  const plain = readFileSync(join(folder, 'a'), 'utf8')
  const mark = (await sound.highest('n'))?.token
  const guarded = await sound.run(fence(3n), async (files) =>
    Buffer.from((await files.read('a')) ?? '').toString(),
  )
  const left = readdirSync(join(folder, '.holdfast')).filter((name) => name.startsWith('.t'))
  return { plain, mark, guarded, left }
}

describe('the redo log of guarded files', () => {
  test('T94 a transaction that fails at its end has renamed nothing', async () => {
    assert.deepEqual(await failAt('before the commit'), { plain: '1', mark: 1n, guarded: '1', left: [] })
  })

  test('a file that could not be stored whole leaves no part of it behind', async () => {
    assert.deepEqual(await failAt('staged'), { plain: '1', mark: 1n, guarded: '1', left: [] })
  })

  test('T94 what was committed and not applied is finished by whoever comes next', async () => {
    assert.deepEqual(await failAt('committed'), { plain: '1', mark: 2n, guarded: '2', left: [] })
  })

  test('T94 what was committed long ago is no leftover of a run without a commit', async () => {
    const folder = mkdtempSync(join(root, 'files-'))
    await using failing = openGuard(folder, 'committed')
    await assert.rejects(
      failing.run(fence(1n), (files) => files.write('a', '1')),
      /planted/,
    )
    const staged = readdirSync(join(folder, '.holdfast')).filter((name) => name.startsWith('.t'))
    assert.equal(staged.length, 1)
    for (const name of staged) utimesSync(join(folder, '.holdfast', name), 0, 0)
    await using sound = openGuard(folder)
    await sound.run(fence(2n), async (files) => assert.equal(String(await files.read('a')), '1'))
  })

  test('a staged file that has vanished fails its run, and nothing is written', async () => {
    const folder = mkdtempSync(join(root, 'files-'))
    await using guard = openGuard(folder)
    const robbed = guard.run(fence(1n), async (files) => {
      await files.write('a', '1')
      for (const name of readdirSync(join(folder, '.holdfast')))
        if (name.startsWith('.t')) rmSync(join(folder, '.holdfast', name))
    })
    await assert.rejects(robbed, { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    assert.equal(await guard.highest('n'), null)
  })

  test('T94 what was applied before is found done', async () => {
    assert.deepEqual(await failAt('applied'), { plain: '2', mark: 2n, guarded: '2', left: [] })
  })
})

describe('a folder that is removed', () => {
  /** A write to `sub/a` that was committed, and whose process died before or after the rename. */
  async function committedUntil(step: string) {
    const folder = mkdtempSync(join(root, 'files-'))
    mkdirSync(join(folder, 'sub'))
    await using failing = openGuard(folder, step)
    await assert.rejects(
      failing.run(fence(1n), (files) => files.write('sub/a', '1')),
      /planted/,
    )
    return folder
  }

  test('does not keep later runs from working, when its files were in place', async () => {
    const folder = await committedUntil('applied')
    rmSync(join(folder, 'sub'), { recursive: true })
    await using guard = openGuard(folder)
    await guard.run(fence(2n, 'other'), (files) => files.write('b', '2'))
    assert.deepEqual(readdirSync(folder).sort(), ['.holdfast', 'b'])
  })

  test('is made again for what was committed', async () => {
    const folder = await committedUntil('committed')
    rmSync(join(folder, 'sub'), { recursive: true })
    await using guard = openGuard(folder)
    await guard.run(fence(2n, 'other'), (files) => files.write('b', '2'))
    assert.equal(readFileSync(join(folder, 'sub/a'), 'utf8'), '1')
  })

  test('before the commit, refuses the run, and nothing is written', async () => {
    const folder = mkdtempSync(join(root, 'files-'))
    mkdirSync(join(folder, 'sub'))
    await using guard = openGuard(folder)
    const overtaken = guard.run(fence(1n), async (files) => {
      await files.write('b', '1')
      await files.write('sub/a', '1')
      rmSync(join(folder, 'sub'), { recursive: true })
    })
    await assert.rejects(overtaken, { code: 'INVALID_ARGUMENT', message: /"sub\/a"/ })
    assert.deepEqual(readdirSync(folder), ['.holdfast'])
    assert.equal(await guard.highest('n'), null)
  })

  test('a folder in the place of a committed file is told, and what was committed waits for its removal', async () => {
    const folder = await committedUntil('committed')
    mkdirSync(join(folder, 'sub/a'))
    await using guard = openGuard(folder)
    const next = () => guard.run(fence(2n, 'other'), (files) => files.write('b', '2'))
    await assert.rejects(next(), {
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'not-applied',
      message: /"sub\/a".*was committed/,
    })
    rmSync(join(folder, 'sub/a'), { recursive: true })
    await next()
    assert.equal(readFileSync(join(folder, 'sub/a'), 'utf8'), '1')
  })
})

test.runIf(process.platform === 'linux')('a folder on a network file system is refused', () => {
  const NFS = 0x6969
  assert.throws(() => new GuardedFolder(root, undefined, () => NFS), { code: 'UNSUPPORTED' })
})
