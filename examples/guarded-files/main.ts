/**
 * A file that two processes count up. One is stopped between its read and its write, is overtaken, and goes on.
 *
 *     node examples/guarded-files/main.ts
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Children } from '../support/child.ts'
import { limitTime, startClaims } from '../support/claims.ts'
import { overtake } from '../support/late-writer.ts'

const { say, check, mustLose, finish } = startClaims()
limitTime()

const folder = mkdtempSync(join(tmpdir(), 'holdfast-files-'))
const locks = mkdtempSync(join(tmpdir(), 'holdfast-locks-'))
try {
  using children = new Children()
  const count = () => readFileSync(join(folder, 'count'), 'utf8')
  const countUp = (how: 'guarded' | 'plain') => {
    writeFileSync(join(folder, 'count'), '0')
    return overtake(children, join(import.meta.dirname, 'counter.ts'), [
      join(locks, `${how}.db`),
      folder,
      how,
    ])
  }

  say('Two processes add one each. The first one is stopped between its read and its write.')
  const plain = await countUp('plain')
  mustLose(
    `the late write is "${plain.late}", and the file says ${count()}`,
    plain.late === 'written' && count() === '1',
  )

  say('\nWith a guard on the folder:')
  const { newer, late } = await countUp('guarded')
  check(
    'the process that overtook it has written, although the first one was frozen in its effect',
    newer === 'written',
  )
  check('the late write is refused', late === 'FENCE_STALE')
  check('and has changed nothing', count() === '1')
} finally {
  rmSync(folder, { recursive: true, force: true })
  rmSync(locks, { recursive: true, force: true })
}
finish()
