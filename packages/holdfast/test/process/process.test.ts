import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { describe, onTestFinished, test } from 'vitest'
import { startProgram } from '../start-program.ts'

/** Node's exit code when only an await that can never end is left. */
const UNSETTLED = 13

const runChild = (name: string, ...given: string[]) =>
  startProgram(join(import.meta.dirname, 'children', name), ...given)

function sqliteFile(): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-process-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return join(folder, 'locks.db')
}

describe.each([
  ['memory', () => 'memory'],
  ['sqlite', sqliteFile],
])('a process that uses %s', (_, where) => {
  test('that only holds leases ends by itself: no timer keeps it alive', async () => {
    const { code, signal, lines, errors } = await runChild('hold.ts', where()).ended
    assert.deepEqual(
      { code, signal, lines, errors },
      { code: 0, signal: null, lines: ['held held'], errors: '' },
    )
  })

  test.each(['20000', 'Infinity'])(
    'that waits stays alive until it is granted (waitMs %s)',
    async (waitMs) => {
      const { code, lines, errors } = await runChild('wait.ts', where(), waitMs, '300').ended
      assert.notEqual(code, UNSETTLED, 'it must not end while a caller waits')
      assert.deepEqual({ code, lines, errors }, { code: 0, lines: ['granted held'], errors: '' })
    },
  )

  test('that waits stays alive until its time is up', async () => {
    const { code, lines, errors } = await runChild('wait.ts', where(), '400', '600000').ended
    assert.deepEqual({ code, lines, errors }, { code: 0, lines: ['ACQUIRE_TIMEOUT'], errors: '' })
  })

  test('that runs withLease stays alive until the body has ended', async () => {
    const { code, lines, errors } = await runChild('lead.ts', where()).ended
    assert.deepEqual(
      { code, lines, errors },
      { code: 0, lines: ['leading', 'stopped', 'max-hold'], errors: '' },
    )
  })

  test('that closes its locker ends although the body of withLease does not', async () => {
    const { code, lines, errors } = await runChild('deaf-leader.ts', where()).ended
    assert.deepEqual({ code, lines, errors }, { code: 0, lines: ['closed'], errors: '' })
  })

  test('that watches stays alive until something happens', async () => {
    const { code, lines, errors } = await runChild('watch.ts', where()).ended
    assert.notEqual(code, UNSETTLED, 'it must not end while a caller waits')
    assert.deepEqual({ code, last: lines.at(-1), errors }, { code: 0, last: 'released', errors: '' })
  })

  test('G3 T8 that was stopped for longer than the TTL does not believe at the first look', async () => {
    const child = runChild('stopped.ts', where(), 'stopped')
    await child.printed('holding')
    child.process.kill('SIGSTOP')
    await pause(2_000)
    child.process.kill('SIGCONT')
    const { code, lines } = await child.ended
    assert.deepEqual({ code, lines }, { code: 0, lines: ['holding', 'lost 0 true'] })
  })

  test('T30 whose engine fails at everything has no unhandled rejection and no uncaught exception', async () => {
    const { code, lines, errors } = await runChild('misfortune.ts', where()).ended
    const expected = ['untyped 0', 'lost', 'closed']
    assert.deepEqual({ code, lines, errors }, { code: 0, lines: expected, errors: '' })
  })
})

describe('a process', () => {
  test('G3 T8 whose event loop was blocked for longer than the TTL does not believe at the first look', async () => {
    const { code, lines } = await runChild('stopped.ts', 'memory', 'blocked').ended
    assert.deepEqual({ code, lines }, { code: 0, lines: ['holding', 'lost 0 true'] })
  })

  test('whose listener throws keeps its lease in order, and is told of the error', async () => {
    const { code, lines } = await runChild('listener.ts', 'memory').ended
    assert.equal(code, 0)
    assert.deepEqual(
      lines.filter((line) => !line.startsWith('uncaught')),
      ['released', 'free again'],
    )
    assert.ok(
      lines.includes('uncaught listener of acquired') && lines.includes('uncaught listener of released'),
    )
  })
})

describe('T16 a process that asks an engine which never answers stays alive for the answer', () => {
  const ask = async (what: string, ...answers: string[]) => {
    const { code, lines, errors } = await runChild('frozen.ts', 'memory', what).ended
    assert.deepEqual({ code, errors, answers: lines.length }, { code: 0, errors: '', answers: 1 })
    assert.ok(answers.includes(lines[0] ?? ''), lines[0])
  }

  test('acquire', () => ask('acquire', 'BACKEND_UNAVAILABLE'))

  test.each(['tryAcquire', 'inspect', 'forceRelease', 'setData'])('%s', (what) =>
    ask(what, 'BACKEND_UNAVAILABLE'),
  )

  test('release', () => ask('release', 'unknown'))

  test('renew', () => ask('renew', 'BACKEND_UNAVAILABLE'))
  test('close', () => ask('close', 'done'))
})
