/**
 * A service on Express that is told to stop (SIGTERM) while it works under a lease: it finishes its work, gives the lease up and
 * exits with 0, and a second process takes over at once.
 *
 *     node examples/express/main.ts
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { Children, ended, heard } from '../support/child.ts'
import { limitTime, startClaims } from '../support/claims.ts'
import type { Told } from './server.ts'

const { say, check, finish } = startClaims()
limitTime()
const TTL_MS = 15_000

const folder = mkdtempSync(join(tmpdir(), 'holdfast-express-'))
try {
  using children = new Children()
  const data = join(folder, 'data.db')
  const database = new DatabaseSync(data, { timeout: 5_000 })
  database.exec('PRAGMA journal_mode = WAL; CREATE TABLE imports (file TEXT, token INTEGER)')
  const start = async () => {
    const child = children.start(join(import.meta.dirname, 'server.ts'), [join(folder, 'locks.db'), data])
    const leading = heard<Told, 'leading'>(child, 'leading')
    const { port } = await heard<Told, 'listening'>(child, 'listening')
    const upload = (file: string) => fetch(`http://127.0.0.1:${port}/imports/${file}`, { method: 'POST' })
    return { child, leading, upload }
  }

  const first = await start()
  const { token } = await first.leading
  const second = await start()
  say(`The first process leads with token ${token}. The second one stands by.`)
  check('the second one refuses to import', (await second.upload('too-early')).status === 503)

  say('\nThe first one is told to stop while it imports.')
  const importing = heard<Told, 'importing'>(first.child, 'importing')
  const upload = first.upload('november.csv')
  await importing
  const exit = ended(first.child)
  first.child.kill('SIGTERM')
  const response = await upload
  check('the request in flight is finished', response.status === 201)
  const code = await exit
  const exitedAtMs = Date.now()
  check('it exits with 0', code === 0)
  const refused = await first.upload('too-late').then(
    () => false,
    () => true,
  )
  check('it accepts no further request', refused)

  const successor = await second.leading
  check('the second one leads with a newer token', BigInt(successor.token) > BigInt(token))
  check(
    'and did not have to wait for the lease to expire',
    Math.abs(successor.atMs - exitedAtMs) < TTL_MS / 3,
  )
  check('it imports now', (await second.upload('december.csv')).status === 201)
  const rows = database.prepare('SELECT file FROM imports ORDER BY token').all()
  check('each file was imported once', rows.map(({ file }) => file).join() === 'november.csv,december.csv')
  const secondExit = ended(second.child)
  second.child.kill('SIGTERM')
  check('the second one exits with 0, too', (await secondExit) === 0)
  database.close()
} finally {
  rmSync(folder, { recursive: true, force: true })
}
finish()
