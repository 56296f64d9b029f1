import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Clock } from '../faults/clock-shim.ts'
import { need, programOf } from '../obtain/find.ts'
import { claimPort, host } from './ports.ts'
import { canLogIn } from './postgres-login.ts'
import { newFolder } from './run.ts'
import { type Server, startServer } from './server.ts'
import { unprivilegedUser } from './unprivileged.ts'

export interface PostgresOptions {
  readonly name?: string
  /** Whether a commit reaches the disk before it counts; off unless a test or benchmark is about that. */
  readonly fsync?: boolean
  readonly clock?: Clock
  readonly settings?: Readonly<Record<string, string>>
}

/** A database server whose user `postgres` needs no password. */
export async function startPostgres(options: PostgresOptions = {}): Promise<Server> {
  const { name = 'postgres', fsync = false, clock, settings } = options
  const found = need('postgres')
  const user = unprivilegedUser()
  const port = await claimPort()
  const folder = newFolder(name, user)
  const data = join(folder, 'data')
  // The smallest log is quicker to create; where speed is measured it stays as it comes.
  const template = await templateOf(fsync ? [] : ['--wal-segsize=1'])
  await promisify(execFile)('cp', ['-a', '--reflink=auto', template, data], { cwd: folder, ...user })
  const all: Record<string, string> = {
    listen_addresses: host,
    // Its socket would lie in a folder that all servers of the machine share.
    unix_socket_directories: '',
    fsync: fsync ? 'on' : 'off',
    max_connections: '200',
    // In its own folder, where it is removed with everything else.
    dynamic_shared_memory_type: 'mmap',
    ...settings,
  }
  return startServer({
    name,
    url: `postgres://postgres@${host}:${port}/postgres`,
    port,
    folder,
    program: programOf(found, 'postgres'),
    arguments: [
      '-D',
      data,
      '-p',
      String(port),
      ...Object.entries(all).flatMap(([key, value]) => ['-c', `${key}=${value}`]),
    ],
    ...(clock ? { environment: clock.environment } : {}),
    ...(user ? { user } : {}),
    quit: 'SIGINT',
    // Its immediate shutdown, which gives the shared memory back.
    end: 'SIGQUIT',
    ready: () => canLogIn({ host, port }),
  })
}

const templates = new Map<string, Promise<string>>()

/** A new cluster of databases. `initdb` takes as long as a small test, so a process runs it once and copies the result. */
function templateOf(options: readonly string[]): Promise<string> {
  const key = options.join(' ')
  const known = templates.get(key)
  if (known !== undefined) return known
  const user = unprivilegedUser()
  const folder = newFolder('postgres-template', user)
  const data = join(folder, 'data')
  const fixed = ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync']
  const made = promisify(execFile)(programOf(need('postgres'), 'initdb'), [...fixed, ...options], {
    cwd: folder,
    ...user,
  }).then(() => data)
  templates.set(key, made)
  return made
}

/** Runs statements with the program `psql`; the rows of the last one, a line each. */
export async function psql({ host, port }: { host: string; port: number }, sql: string): Promise<string> {
  const connection = `host=${host} port=${port} user=postgres dbname=postgres connect_timeout=5`
  const { stdout } = await promisify(execFile)(programOf(need('postgres'), 'psql'), [
    ...['-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1', '-d', connection, '-c', sql],
  ])
  return stdout.trim()
}
