/** Adds one to the number in a file, under a lease. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Fence, isHoldfastError } from 'holdfast'
import { fileGuard } from 'holdfast/guards/file'
import { writeUnderLease } from '../support/late-writer.ts'

const [locks = '', folder = '', how = ''] = process.argv.slice(2)

function countPlain(pause: () => void): void {
  const before = Number(readFileSync(join(folder, 'count'), 'utf8'))
  pause()
  writeFileSync(join(folder, 'count'), String(before + 1))
}

async function countGuarded(fence: Fence, pause: () => void): Promise<void> {
  await using guard = fileGuard({ folder })
  await guard.run(fence, async (files) => {
    const before = Number(Buffer.from((await files.read('count')) ?? '0').toString())
    pause()
    await files.write('count', String(before + 1))
  })
}

await writeUnderLease(locks, 'count', async (fence, pause) => {
  try {
    if (how === 'plain') countPlain(pause)
    else await countGuarded(fence, pause)
    return 'written'
  } catch (error) {
    if (isHoldfastError(error)) return error.code
    throw error
  }
})
