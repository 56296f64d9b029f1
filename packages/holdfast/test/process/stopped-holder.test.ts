/** A process that is stopped past the end of its lease: what its metrics say afterwards. */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished, test } from 'vitest'
import { sqliteGuard } from '../../src/engines/sqlite/guard/sqlite-guard.ts'
import { sqlite } from '../../src/engines/sqlite/locks/index.ts'
import { createLocker } from '../../src/locker/locker.ts'
import { startProgram } from '../start-program.ts'
import { numbersIn } from '../telemetry/outputs.ts'

const TTL_MS = 3_000

test('a holder that was stopped counts its pause, its loss, and what the guard refused', {
  timeout: 60_000,
}, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-stopped-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const [locks, resource] = [join(folder, 'locks.db'), join(folder, 'stock.db')]
  const child = startProgram(
    join(import.meta.dirname, 'children', 'stopped-holder.ts'),
    locks,
    resource,
    TTL_MS,
  )
  await child.printed('before')
  child.process.kill('SIGSTOP')
  await using locker = createLocker(sqlite({ path: locks }))
  const successor = await locker.acquire('x')
  await sqliteGuard({ path: resource, name: 'stock' }).run(successor, () => {})
  child.process.kill('SIGCONT')
  const { code, lines, errors } = await child.ended
  assert.deepEqual({ code, errors }, { code: 0, errors: '' })
  const said = (word: string) =>
    numbersIn(
      lines.flatMap((line) => (line.startsWith(`${word} `) ? [line.slice(word.length + 1)] : [])).join('\n'),
    )
  const [before, after] = [said('before'), said('after')]
  const rise = (series: string) => (after.get(series) ?? 0) - (before.get(series) ?? 0)
  const about = 'backend="sqlite",group="",namespace="default"'
  assert.deepEqual(
    {
      lost: rise(`holdfast_lost_total{${about},reason="expired"}`),
      paused: rise('holdfast_paused_seconds_count{backend="sqlite",namespace="default"}'),
      showedLease: rise('holdfast_guard_total{guard="stock",outcome="lost"}'),
      showedFence: rise('holdfast_guard_total{guard="stock",outcome="stale"}'),
      accepted: rise('holdfast_guard_total{guard="stock",outcome="accepted"}'),
      held: rise(`holdfast_held{${about}}`),
    },
    { lost: 1, paused: 1, showedLease: 1, showedFence: 1, accepted: 0, held: -1 },
  )
})
