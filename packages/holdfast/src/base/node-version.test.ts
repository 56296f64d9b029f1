import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'vitest'
import { complaintAboutNode } from './node-version.ts'

test.each(['18.20.8', '20.20.2', '21.7.3', '22.0.0', '22.12.0', '0.10.48', 'v8', ''])(
  'Node %s is refused',
  (version) => {
    const message = `holdfast needs Node 22.13 or newer, and this is Node ${version}.`
    assert.equal(complaintAboutNode(version), message)
  },
)

test.each(['22.13.0', '22.13.0-nightly', '22.22.1', '23.0.0', '24.21.0', '100.0.0'])(
  'Node %s will do',
  (version) => {
    assert.equal(complaintAboutNode(version), null)
  },
)

test('package.json names the same version', () => {
  const manifest = readFileSync(new URL('../../package.json', import.meta.url), 'utf8')
  const oldest = JSON.parse(manifest).engines.node.replace('>=', '')
  assert.equal(complaintAboutNode(`${oldest}.0`), null)
  assert.match(complaintAboutNode('22.12.0') ?? '', new RegExp(`Node ${oldest.replace('.', '\\.')} or newer`))
})
