/** One process of a service that wants one leader. The leader writes the numbers; the others are ready to take over. */
import { setTimeout as sleep } from 'node:timers/promises'
import { createLocker, isHoldfastError } from 'holdfast'
import { sqliteGuard } from 'holdfast/guards/sqlite'
import { election, type Term } from 'holdfast/recipes/election'
import { sqlite } from 'holdfast/sqlite'

const [holder = '', locks = '', data = ''] = process.argv.slice(2)

await using locker = createLocker(sqlite({ path: locks }), { holder, ttlMs: 1_000 })
await using guard = sqliteGuard({ path: data })

const stop = new AbortController()
process.on('SIGTERM', () => stop.abort())

let freezesBeforeNextWrite = false
process.on('message', () => {
  freezesBeforeNextWrite = true
})
// Open IPC would keep the process alive after its service has ended.
process.channel?.unref()

await election(locker, 'numbers').serve(lead, { signal: stop.signal })

async function lead(term: Term<'fenced'>): Promise<void> {
  await term.proclaim({ pid: process.pid })
  while (!term.signal.aborted) {
    // Between the look at the signal and the write there is always a moment in which a process can be stopped.
    if (freezesBeforeNextWrite) freeze()
    await write(term)
    await sleep(50, undefined, { signal: term.signal })
  }
}

function freeze(): void {
  freezesBeforeNextWrite = false
  process.kill(process.pid, 'SIGSTOP')
}

/** The fence goes to the resource, as it would go to a server. */
async function write({ lease }: Term<'fenced'>): Promise<void> {
  const { fence } = lease
  try {
    await guard.run(fence, (tx) =>
      tx.prepare('INSERT INTO numbers (writer, token) VALUES (?, ?)').run(holder, fence.token),
    )
  } catch (error) {
    if (isHoldfastError(error, 'FENCE_STALE')) process.send?.('refused')
    throw error
  }
}
