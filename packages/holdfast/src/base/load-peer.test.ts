import assert from 'node:assert/strict'
import { test } from 'vitest'
import { loadPeer } from './load-peer.ts'

test('a package that is installed is loaded by its name', async () => {
  const { Cron } = (await loadPeer('croner')) as { Cron: unknown }
  assert.equal(typeof Cron, 'function')
})

test('a package that is missing rejects with the code of the module loader', () =>
  assert.rejects(loadPeer('a-package-that-nobody-has'), { code: 'ERR_MODULE_NOT_FOUND' }))
