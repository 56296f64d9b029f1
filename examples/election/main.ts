/**
 * One leader at a time: of three processes one writes numbers. The leader is killed; the next one is frozen just before a
 * write, deposed, and goes on; the third one is asked to stop.
 *
 *     node examples/election/main.ts
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { createLocker } from 'holdfast'
import { election, type Leader } from 'holdfast/recipes/election'
import { sqlite } from 'holdfast/sqlite'

const folder = mkdtempSync(join(tmpdir(), 'holdfast-election-'))
const [locks, data] = [join(folder, 'locks.db'), join(folder, 'data.db')]
const candidates = new Map<number, ChildProcess>()
try {
  using database = new DatabaseSync(data)
  database.exec(
    'PRAGMA journal_mode = WAL; CREATE TABLE numbers (no INTEGER PRIMARY KEY, writer TEXT, token INTEGER)',
  )
  const rowsOf = ({ token }: Leader<'fenced'>) =>
    database.prepare('SELECT count(*) AS count FROM numbers WHERE token = ?').get(token)?.count as number
  const hasWritten = async (leader: Leader<'fenced'>) => {
    while (rowsOf(leader) < 5) await sleep(20)
  }

  for (const holder of ['one', 'two', 'three']) startCandidate(holder)
  await using locker = createLocker(sqlite({ path: locks }), { holder: 'observer' })
  const leaders = election(locker, 'numbers').observe()[Symbol.asyncIterator]()

  const first = await nextLeader(leaders)
  await hasWritten(first)
  processOf(first).kill('SIGKILL')
  console.log(`${first.holder} led, and was killed.`)

  const second = await nextLeader(leaders, first)
  await hasWritten(second)
  const frozen = processOf(second)
  const refused = once(frozen, 'message')
  frozen.send('freeze')

  const third = await nextLeader(leaders, second)
  await hasWritten(third)
  frozen.kill('SIGCONT')
  await refused
  console.log(`${second.holder} led, froze before a write and was deposed; its write was refused.`)

  const stopped = once(processOf(third), 'exit')
  processOf(third).kill('SIGTERM')
  const [code] = await stopped
  if (code !== 0) throw new Error(`${third.holder} did not stop in order: ${code}`)
  const fourth = await nextLeader(leaders, third)
  await hasWritten(fourth)
  console.log(`${third.holder} led, and stopped when it was asked to; ${fourth.holder} leads now.`)

  const rows = database.prepare('SELECT writer, token FROM numbers ORDER BY no').all()
  const terms = rows.filter((row, index) => row.token !== rows[index - 1]?.token)
  const expected = [first, second, third, fourth].map(({ holder }) => holder)
  if (terms.map(({ writer }) => writer).join() !== expected.join())
    throw new Error(`The writers took turns: ${terms.map(({ writer }) => writer).join()}`)
  console.log('Each leader’s numbers stand together: there was one writer at a time.')
} finally {
  for (const candidate of candidates.values()) candidate.kill('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
}

function startCandidate(holder: string): void {
  const candidate = fork(join(import.meta.dirname, 'candidate.ts'), [holder, locks, data], {
    execArgv: ['--disable-warning=ExperimentalWarning'],
  })
  candidates.set(candidate.pid ?? 0, candidate)
}

/** Where the leader is, is what it has proclaimed. */
function processOf({ value }: Leader<'fenced'>): ChildProcess {
  const candidate = candidates.get((value as { readonly pid: number }).pid)
  if (candidate === undefined) throw new Error('The leader is not one of ours.')
  return candidate
}

async function nextLeader(
  leaders: AsyncIterator<Leader<'fenced'> | null>,
  before?: Leader<'fenced'>,
): Promise<Leader<'fenced'>> {
  for (;;) {
    const { value: leader } = await leaders.next()
    if (leader == null || leader.id === before?.id || leader.value === undefined) continue
    if (before !== undefined && leader.token <= before.token) throw new Error('A leader came back.')
    return leader
  }
}
