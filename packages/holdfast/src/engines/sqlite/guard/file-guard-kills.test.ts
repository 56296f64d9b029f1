/** Processes that are killed at every step of a write. In a file of their own: starting processes takes long. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, test } from 'vitest'
import { fence } from '../../../../test/guard-table.ts'
import { newSeed } from '../../../../test/seed.ts'
import { seededRandom } from '../../../testing/seeded-random.ts'
import { fileGuard } from './file-guard.ts'

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

describe('T94 a process that is killed', () => {
  const program = join(import.meta.dirname, '../../../../test/sqlite/children/file-writer.ts')
  /** Writes the token into the files a and b, and dies at that step; its last one if there are not so many. */
  const write = (folder: string, token: number, step: number | string) => {
    const { signal, status, stderr } = spawnSync(process.execPath, [
      '--disable-warning=ExperimentalWarning',
      program,
      folder,
      `${token}`,
      `${step}`,
    ])
    if (signal !== 'SIGKILL' && status !== 0) assert.fail(String(stderr))
    return signal === 'SIGKILL'
  }

  test('at every step leaves the old content with the old mark, or the new with the new', async () => {
    let dead = 0
    for (let step = 1, isKilled = true; isKilled; step++) {
      const folder = newFolder()
      await using guard = fileGuard({ folder })
      await guard.run(fence(1n), async (files) => {
        await files.write('a', '1')
        await files.write('b', '1')
      })
      isKilled = write(folder, 2, step)
      if (isKilled) dead++
      const mark = (await guard.highest('n'))?.token
      const isCommitted = mark === 2n
      const seen = await guard.run(fence(3n), async (files) => [
        textOf(await files.read('a')),
        textOf(await files.read('b')),
      ])
      assert.deepEqual(seen, isCommitted ? ['2', '2'] : ['1', '1'], `killed at step ${step}, mark ${mark}`)
      assert.deepEqual([stored(folder, 'a'), stored(folder, 'b')], seen)
      await guard.run(fence(3n), (files) => files.write('a', '3'))
      assert.equal(stored(folder, 'a'), '3')
    }
    assert.ok(dead >= 12, `there were ${dead} steps`)
  })

  test('at every step, while it finishes what another one has left, leaves the content of the mark', async () => {
    const left = newFolder()
    assert.ok(write(left, 1, 'committed'))
    let dead = 0
    for (let step = 1, isKilled = true; isKilled; step++) {
      const folder = newFolder()
      cpSync(left, folder, { recursive: true })
      assert.deepEqual([stored(folder, 'a'), stored(folder, 'b')], [undefined, undefined])
      isKilled = write(folder, 2, step)
      if (isKilled) dead++
      await using guard = fileGuard({ folder })
      const mark = (await guard.highest('n'))?.token
      const seen = await guard.run(fence(3n), async (files) => [
        textOf(await files.read('a')),
        textOf(await files.read('b')),
      ])
      assert.deepEqual(seen, [`${mark}`, `${mark}`], `killed at step ${step}`)
      assert.deepEqual([stored(folder, 'a'), stored(folder, 'b')], seen)
    }
    assert.ok(dead >= 14, `there were ${dead} steps`)
  })

  test('at random steps, again and again in one folder, never leaves content that is older than the mark', async () => {
    const seed = newSeed()
    const random = seededRandom(seed)
    const folder = newFolder()
    let committed = '0'
    let token = 0
    for (let trial = 0; trial < 15; trial++) {
      write(folder, ++token, 1 + Math.floor(random.fraction() * 16))
      await using guard = fileGuard({ folder })
      const mark = (await guard.highest('n'))?.token ?? 0n
      if (mark === BigInt(token)) committed = `${token}`
      const seen = await guard.run(fence(BigInt(++token)), async (files) => [
        textOf(await files.read('a')) ?? '0',
        textOf(await files.read('b')) ?? '0',
      ])
      assert.deepEqual(seen, [committed, committed], `seed ${seed}, trial ${trial}`)
    }
  })
})
