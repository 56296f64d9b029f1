/**
 * A NestJS application in three processes. A method with `@Once()` runs in one of them.
 *
 *     node examples/nestjs/main.ts
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { Children, ended, heard } from '../support/child.ts'
import { limitTime, startClaims } from '../support/claims.ts'

type Told = { readonly kind: 'ready' } | { readonly kind: 'done'; readonly result?: string }

const { say, check, finish } = startClaims()
limitTime()

say('Compiling the application, because Node cannot strip decorators …')
const compiler = join(dirname(createRequire(import.meta.url).resolve('typescript6/package.json')), 'bin/tsc')
const project = join(import.meta.dirname, 'app/tsconfig.json')
const compiled = spawnSync(process.execPath, [compiler, '-p', project], { stdio: 'inherit' })
check('it compiles', compiled.status === 0)

const folder = mkdtempSync(join(tmpdir(), 'holdfast-nestjs-'))
try {
  using children = new Children()
  const data = join(folder, 'data.db')
  const database = new DatabaseSync(data, { timeout: 5_000 })
  // No unique key on purpose: if the method ran twice, the table would show it.
  database.exec('PRAGMA journal_mode = WAL; CREATE TABLE reports (date TEXT, process INTEGER)')
  process.env.DATA = data
  process.env.LOCKS = join(folder, 'locks.db')
  const replicas = [1, 2, 3].map(() => children.start(join(import.meta.dirname, 'dist/replica.js'), []))
  await Promise.all(replicas.map((replica) => heard<Told, 'ready'>(replica, 'ready')))

  for (const date of ['2026-11-14', '2026-11-15']) {
    say(`\nThe night of ${date} in three processes:`)
    const done = replicas.map((replica) => heard<Told, 'done'>(replica, 'done'))
    for (const replica of replicas) replica.send({ date })
    const results = (await Promise.all(done)).map(({ result }) => result)
    const rows = database.prepare('SELECT process FROM reports WHERE date = ?').all(date)
    check('the method ran once', rows.length === 1)
    check(
      'one process has its result, two found it done',
      results.filter((result) => result === `report of ${date}`).length === 1,
    )
  }

  const exits = replicas.map(ended)
  for (const replica of replicas) replica.kill('SIGTERM')
  const codes = await Promise.all(exits)
  check('all processes close their locker and exit with 0', codes.join() === '0,0,0')
  database.close()
} finally {
  rmSync(folder, { recursive: true, force: true })
}
finish()
