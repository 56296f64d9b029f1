/** A process that is stopped in the middle of a guarded write, while a newer holder comes and goes. */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pause, resume } from 'holdfast-lab/faults'
import { wanted } from 'holdfast-lab/servers'
import { describe, onTestFinished, test } from 'vitest'
import { makeFence } from '../../src/base/fence.ts'
import { objectGuard } from '../../src/guards/object.ts'
import { openStore } from '../object/open-store.ts'
import { engineOfStore, storeNames } from '../object/stores.ts'
import { startProgram } from '../start-program.ts'

for (const name of storeNames) {
  describe.runIf(wanted(engineOfStore[name]))(`objectGuard on ${name}`, () => {
    test('G5 the late request of a writer that was stopped is refused and changes nothing', {
      timeout: 60_000,
    }, async () => {
      const { url, bucket, store, close } = await openStore(name)
      onTestFinished(close)
      const folder = mkdtempSync(join(tmpdir(), 'holdfast-stopped-'))
      onTestFinished(() => rmSync(folder, { recursive: true }))
      const gate = join(folder, 'gate')
      const program = join(import.meta.dirname, 'children/stopped-writer.ts')
      const child = startProgram(program, name, url, bucket, gate)
      await child.printed('waiting')
      await pause(child.process)
      const guard = objectGuard({ store })
      const successor = makeFence({ issuer: 'i', name: 'n', mode: 'exclusive', token: 2n, grant: 'g2' })
      await guard.put(successor, 'newer')
      const head = await store.get('n.head')
      writeFileSync(gate, '')
      resume(child.process)
      const { lines, errors } = await child.ended
      assert.deepEqual({ lines, errors }, { lines: ['waiting', 'FENCE_STALE'], errors: '' })
      assert.deepEqual(await store.get('n.head'), head)
      assert.equal(new TextDecoder().decode((await guard.get(successor)) ?? undefined), 'newer')
    })
  })
}
