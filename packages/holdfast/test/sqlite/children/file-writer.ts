/** Writes its token into two guarded files, and kills itself at the given step: its number, or its name. */

import { GuardedFolder } from '../../../src/engines/sqlite/guard/file/folder.ts'
import { openFileGuard } from '../../../src/engines/sqlite/guard/file/guard.ts'
import { checkGuardOptions } from '../../../src/guards/settings.ts'
import { fence } from '../../guard-table.ts'

const [folder = '', token = '', lastStep = ''] = process.argv.slice(2)
let steps = 0
const onStep = (step: string) => {
  if (++steps === Number(lastStep) || step === lastStep) process.kill(process.pid, 'SIGKILL')
}
const guard = openFileGuard(new GuardedFolder(folder, onStep), checkGuardOptions({}))
await guard.run(fence(BigInt(token)), async (files) => {
  await files.write('a', token)
  await files.write('b', token)
})
await guard.close()
