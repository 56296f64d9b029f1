/**
 * Run a scheduled job once, not on every replica: three processes want to write the same nightly reports.
 *
 *     node examples/run-once/main.ts
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { promisify } from 'node:util'

const replicas = ['replica-1', 'replica-2', 'replica-3']
const dates = ['2026-11-14', '2026-11-15']

const folder = mkdtempSync(join(tmpdir(), 'holdfast-run-once-'))
try {
  const data = join(folder, 'data.db')
  const database = new DatabaseSync(data)
  // No unique key on purpose: if the job ran twice, the table would show it.
  database.exec('PRAGMA journal_mode = WAL; CREATE TABLE runs (date TEXT, replica TEXT, token INTEGER)')

  const outputs = await Promise.all(replicas.map((replica) => startReplica(replica, data)))

  const runs = database.prepare('SELECT date, replica FROM runs ORDER BY date').all()
  database.close()
  for (const date of dates) {
    const ran = runs.filter((run) => run.date === date).map((run) => run.replica)
    const found = replicas.filter((_, index) => outputs[index]?.includes(`${date} found it done`))
    if (ran.length !== 1) throw new Error(`The job of ${date} ran ${ran.length} times: ${ran.join(', ')}`)
    if (found.length !== replicas.length - 1) throw new Error(`Somebody got no answer for ${date}.`)
    console.log(`${date}: ${ran[0]} ran the job; ${found.join(' and ')} found it done.`)
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}

async function startReplica(replica: string, data: string): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [
    '--disable-warning=ExperimentalWarning',
    join(import.meta.dirname, 'replica.ts'),
    ...[replica, join(folder, 'locks.db'), data, ...dates],
  ])
  return stdout
}
