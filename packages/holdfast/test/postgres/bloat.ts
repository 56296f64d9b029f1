/**
 * How many dead rows renewals leave: `node packages/holdfast/test/postgres/bloat.ts 60` runs for 60 seconds on a server of its
 * own, without any vacuum, and fails if they grow with the number of renewals.
 */
import { startPostgres } from 'holdfast-lab/servers'
import { call, openSession, Stage } from './stage.ts'

const seconds = Number(process.argv[2] ?? 60)
const SESSIONS = 50
const EVERY_MS = 100

await using server = await startPostgres({ settings: { autovacuum: 'off' } })
await using stage = new Stage(server.url)
const backend = await stage.backend()
const operator = await stage.operator()
const sessions = await Promise.all(Array.from({ length: SESSIONS }, () => openSession(backend)))

const endMs = performance.now() + seconds * 1_000
let most = 0
for (let round = 1; performance.now() < endMs; round++) {
  await Promise.all(sessions.map((session) => session.keepAlive({ held: [], waiting: [] }, call())))
  await new Promise((resolve) => setTimeout(resolve, EVERY_MS))
  if (round % 20 !== 0) continue
  const { rows } = await operator.query(
    `SELECT n_tup_upd::int AS updates, n_tup_hot_upd::int AS hot, n_dead_tup::int AS dead,
      pg_relation_size(relid)::int AS bytes FROM pg_stat_user_tables WHERE relname = 'sessions'`,
  )
  const { updates, hot, dead, bytes } = rows[0]
  most = Math.max(most, dead)
  console.log(
    `renewals ${updates}, of these without touching an index ${hot}, dead rows ${dead}, table ${bytes} bytes`,
  )
}
if (most > SESSIONS * 40) throw new Error(`${most} dead rows for ${SESSIONS} sessions`)
