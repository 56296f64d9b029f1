import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { describe, onTestFinished, test } from 'vitest'
import { wanted } from '../servers/wanted.ts'
import { engines, folderVariable, neededFor, recipes, tools } from './engines.ts'

const script = resolve(import.meta.dirname, '../../scripts/install-servers.ts')

/** The script with nothing on its PATH but these programs, which print this version. */
function check(
  names: readonly string[],
  environment: Record<string, string>,
  ...programs: readonly string[]
) {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-obtain-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  for (const program of programs) {
    writeFileSync(join(folder, program), '#!/bin/sh\necho version 12.34.5\n')
    chmodSync(join(folder, program), 0o755)
  }
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, '--check', ...names], {
    env: { PATH: folder, ...environment },
    encoding: 'utf8',
  })
  return { status, stdout, stderr }
}

describe('what a run needs', () => {
  test('everything, unless it is narrowed', () => {
    assert.deepEqual(neededFor(undefined), [...engines, ...tools])
    assert.deepEqual(neededFor('memory,sqlite'), [])
    assert.deepEqual(neededFor('memory,redis'), ['redis', 'gcc'])
    assert.deepEqual(neededFor('redlock'), ['redis', 'gcc'])
    assert.deepEqual(neededFor('pgbouncer'), ['postgres', 'pgbouncer', 'gcc'])
    assert.deepEqual(neededFor('spin'), ['spin'])
  })

  test('a test asks whether it is wanted', () => {
    const before = process.env.HOLDFAST_TEST_ONLY
    onTestFinished(() => {
      if (before === undefined) delete process.env.HOLDFAST_TEST_ONLY
      else process.env.HOLDFAST_TEST_ONLY = before
    })
    delete process.env.HOLDFAST_TEST_ONLY
    assert.ok(wanted('redis') && wanted('memory'))
    process.env.HOLDFAST_TEST_ONLY = 'redlock,memory'
    assert.ok(wanted('redis') && wanted('redlock', 'memory'))
    assert.ok(!wanted('etcd') && !wanted('redis', 'etcd') && !wanted('sqlite'))
  })
})

describe('the set-up script', () => {
  test('names what is missing, says what to install, and fails', () => {
    const { status, stdout, stderr } = check(['redis', 'spin'], {}, 'spin')
    assert.equal(status, 1)
    assert.match(stdout, /✗ redis +missing: install it .*`redis-server` on PATH.*HOLDFAST_TEST_REDIS_URL/)
    assert.match(stdout, /✓ spin +12\.34\.5, found/)
    assert.match(stderr, /Missing: redis\./)
  })

  test('finds a binary on PATH', () => {
    const { status, stdout } = check(['redis', 'etcd'], {}, 'redis-server', 'etcd', 'etcdctl')
    assert.equal(status, 0)
    assert.equal(stdout.match(/12\.34\.5, found/g)?.length, 2)
  })

  test('takes an address in the environment before everything else', () => {
    const address = { HOLDFAST_TEST_REDIS_URL: 'redis://127.0.0.1:1' }
    const { status, stdout } = check(['redis'], address, 'redis-server')
    assert.equal(status, 0)
    assert.match(stdout, /at the address in HOLDFAST_TEST_REDIS_URL/)
  })

  test('takes another version from the folder in the environment, and from nowhere else', () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-version-'))
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
    for (const program of ['redis-server', 'zookeeper.jar', 'zookeeper-9.9.9.jar', 'etcd'])
      writeFileSync(join(folder, program), '#!/bin/sh\necho version 5.5.5\n', { mode: 0o755 })
    const names = ['redis', 'zookeeper', 'etcd'] as const
    const folders = Object.fromEntries(names.map((name) => [folderVariable(name), folder]))
    const { status, stdout } = check(names, folders, 'redis-server', 'etcd', 'etcdctl', 'java')
    assert.equal(status, 1)
    assert.match(stdout, /✓ redis +5\.5\.5/)
    assert.match(stdout, /✓ zookeeper +9\.9\.9/)
    assert.match(stdout, /✗ etcd +missing: put `etcd`, `etcdctl` into .*HOLDFAST_TEST_ETCD_BIN/)
  })

  test('needs nothing for a run that needs no server', () => {
    const { status, stdout } = check([], { HOLDFAST_TEST_ONLY: 'memory' })
    assert.equal(status, 0)
    assert.equal(stdout, '')
  })

  test('refuses a name that it does not know', () => {
    assert.equal(check(['mongodb'], {}).status, 2)
  })

  test('knows for each of them which package it comes in', () => {
    for (const [name, { debian, npm, programs }] of Object.entries(recipes)) {
      assert.ok((debian.length > 0 || npm !== undefined) && programs.length > 0, name)
    }
  })
})
