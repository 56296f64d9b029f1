/** The engine of a command: `--url`, `HOLDFAST_URL`, or a file of the user's own on this machine. */
import { mkdirSync } from 'node:fs'
import { homedir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import type { AnyLocker } from 'holdfast'
import { EXIT, Exit, messageOf, usageError } from './exits.ts'
import { hidePasswordsOf } from './passwords.ts'
import type { Signals } from './signals.ts'
import { say } from './terminal.ts'

export interface EngineFlags {
  readonly url?: string
  readonly require?: readonly string[]
}

/** While an engine is down, closing takes a TTL and more. A command does not wait for it: what it may still hold expires by itself. */
const CLOSE_MS = 5_000

/** Opens the engine, and closes it however `work` ends. With `signals`, one of them ends the opening too. */
export async function withEngine(
  flags: EngineFlags,
  work: (locker: AnyLocker) => Promise<number>,
  signals?: Signals,
): Promise<number> {
  // Opening holds nothing, so it may be left to itself.
  const locker = await (signals?.unlessCancelled(openEngine(flags)) ?? openEngine(flags))
  try {
    if (locker.info.scope === 'process')
      throw usageError('locks in memory belong to one process, so no other command would see them.')
    return await work(locker)
  } finally {
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = locker.clock.setTimer(CLOSE_MS, resolve, { keepsProcessAlive: true })
    // A failure of the closing must not take the place of the command's own end (G11).
    await Promise.race([locker.close({ graceMs: 0 }).catch(() => {}), promise])
    timer.cancel()
  }
}

async function openEngine(flags: EngineFlags): Promise<AnyLocker> {
  const { openLocker } = await import('holdfast')
  const require = (flags.require ?? []).map((each) => {
    if (each === 'fenced' || each === 'cluster') return each
    throw usageError(`--require must be fenced or cluster, not ${JSON.stringify(each)}.`)
  })
  const url = flags.url ?? process.env.HOLDFAST_URL ?? ''
  hidePasswordsOf(url)
  return openLocker(url === '' ? ownFile() : url, { require })
}

function ownFile(): string {
  const { XDG_STATE_HOME: state = '' } = process.env
  const folder = join(isAbsolute(state) ? state : join(homedir(), '.local', 'state'), 'holdfast')
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
  } catch (cause) {
    throw new Exit(EXIT.unavailable, `no --url and no HOLDFAST_URL, and ${messageOf(cause)}.`, { cause })
  }
  const path = join(folder, 'locks.db')
  say(`no --url and no HOLDFAST_URL, so locks are in ${path}: this user on this machine only.`)
  return `sqlite:${encodeURIComponent(path).replaceAll('%2F', '/')}`
}
