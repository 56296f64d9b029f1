/** Two processes write one thing: the first one is stopped before its write, and goes on when the second one has written. */
import { readSync } from 'node:fs'
import { createLocker, type Fence } from 'holdfast'
import { sqlite } from 'holdfast/sqlite'
import { type Children, heard } from './child.ts'

type Told = { readonly kind: 'about-to-write' } | { readonly kind: 'answered'; readonly answer: string }

/** Starts the two, and returns what each was answered. */
export async function overtake(children: Children, program: string, args: readonly string[]) {
  const first = children.start(program, args)
  await heard<Told, 'about-to-write'>(first, 'about-to-write')
  first.kill('SIGSTOP')
  const second = children.start(program, args)
  // It has the lease by now: that of the first one ran out.
  await heard<Told, 'about-to-write'>(second, 'about-to-write')
  const written = heard<Told, 'answered'>(second, 'answered')
  second.stdin?.write('.')
  const { answer: newer } = await written
  const lateWrite = heard<Told, 'answered'>(first, 'answered')
  first.kill('SIGCONT')
  first.stdin?.write('.')
  const { answer: late } = await lateWrite
  return { newer, late }
}

/** The body of such a process. `write` calls `pause` right before its write, and answers what came of it. */
export async function writeUnderLease(
  locks: string,
  name: string,
  write: (fence: Fence, pause: () => void) => Promise<string>,
): Promise<void> {
  // A service would leave the TTL at 15 s. Here the reader waits until the lease of the first one has run out.
  const locker = createLocker(sqlite({ path: locks }), { ttlMs: 1_000 })
  const lease = await locker.acquire(name, { waitMs: 60_000 })
  // The bare fence: a lease would know by its own clock that it is late. This is as if the stop came after that look at the clock.
  tell({ kind: 'answered', answer: await write(lease.fence, pause) })
  process.exit()
}

function pause(): void {
  tell({ kind: 'about-to-write' })
  if (readSync(0, new Uint8Array(1)) !== 1) process.exit()
}

function tell(told: Told): void {
  process.send?.(told)
}
