/** The engine of a command: `--url`, `HOLDFAST_URL`, or a file of the user's own on this machine. */
import { mkdirSync } from 'node:fs'
import { homedir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import type { AnyLocker, LockerOptions } from 'holdfast'
import { usageError } from './exits.ts'
import { say } from './terminal.ts'

export interface EngineFlags {
  readonly url?: string
  readonly require?: readonly string[]
}

type Requirement = 'fenced' | 'cluster'

export async function openEngine(flags: EngineFlags, options: LockerOptions = {}): Promise<AnyLocker> {
  const { openLocker } = await import('holdfast')
  const require = (flags.require ?? []).map((each): Requirement => {
    if (each === 'fenced' || each === 'cluster') return each
    throw usageError(`--require must be fenced or cluster, not ${JSON.stringify(each)}.`)
  })
  opened = flags.url ?? process.env.HOLDFAST_URL ?? ''
  return openLocker(opened === '' ? ownFile() : opened, { ...options, require })
}

/** The URL, which may hold passwords. */
let opened = ''

function ownFile(): string {
  const { XDG_STATE_HOME: state = '' } = process.env
  const folder = join(isAbsolute(state) ? state : join(homedir(), '.local', 'state'), 'holdfast')
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const path = join(folder, 'locks.db')
  say(`no --url and no HOLDFAST_URL, so locks are in ${path}: this user on this machine only.`)
  return `sqlite:${encodeURIComponent(path).replaceAll('%2F', '/')}`
}

/** Whatever a message may quote of the URL: its passwords never. */
export function withoutPasswords(text: string, url = opened): string {
  const [, authority = ''] = /^[a-z0-9+]+:\/\/([^/?#]*)/i.exec(url) ?? []
  // Up to the last @, because a password may contain one. A list of hosts may have a password each.
  const written = [authority, ...authority.split(',')].map((part) => /^[^:]*:(.*)@/.exec(part)?.[1] ?? '')
  const forms = new Set(written.flatMap((password) => [password, decoded(password)]))
  return [...forms].reduce((shown, form) => (form === '' ? shown : shown.replaceAll(form, '…')), text)
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    // It is no encoded text, so nothing else decodes it either.
    return text
  }
}

/** Closing waits for an engine that is away for a TTL and more. A command does not: nothing is held any more, or expires. */
const CLOSE_MS = 5_000

export async function closeEngine(locker: AnyLocker): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const timer = locker.clock.setTimer(CLOSE_MS, resolve, { keepsProcessAlive: true })
  // A failure of the closing must not take the place of the command's own end (G11).
  await Promise.race([locker.close({ graceMs: 0 }).catch(() => {}), promise])
  timer.cancel()
}
