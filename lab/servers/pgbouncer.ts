import { chownSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { need } from '../obtain/find.ts'
import { type Cluster, clusterOf, orStop } from './cluster.ts'
import { claimPort, host } from './ports.ts'
import { startPostgres } from './postgres.ts'
import { canLogIn } from './postgres-login.ts'
import { newFolder } from './run.ts'
import { type Server, startServer } from './server.ts'
import { unprivilegedUser } from './unprivileged.ts'

export interface PgBouncerOptions {
  /** The database server behind it; the address of a proxy will do. */
  readonly postgres: { readonly host: string; readonly port: number }
  readonly poolMode?: 'session' | 'transaction' | 'statement'
  readonly settings?: Readonly<Record<string, string>>
}

export async function startPgBouncer(options: PgBouncerOptions): Promise<Server> {
  const { postgres, poolMode = 'transaction', settings } = options
  const user = unprivilegedUser()
  const port = await claimPort()
  const folder = newFolder('pgbouncer', user)
  const all: Record<string, string | number> = {
    listen_addr: host,
    listen_port: port,
    unix_socket_dir: '',
    auth_type: 'trust',
    auth_file: join(folder, 'users.txt'),
    admin_users: 'postgres',
    pool_mode: poolMode,
    ignore_startup_parameters: 'extra_float_digits',
    max_client_conn: 500,
    ...settings,
  }
  const lines = Object.entries(all).map(([key, value]) => `${key} = ${value}`)
  const files = {
    'users.txt': '"postgres" ""\n',
    'pgbouncer.ini': `[databases]\n* = host=${postgres.host} port=${postgres.port}\n[pgbouncer]\n${lines.join('\n')}\n`,
  }
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(join(folder, name), text)
    if (user) chownSync(join(folder, name), user.uid, user.gid)
  }
  return startServer({
    name: 'pgbouncer',
    url: `postgres://postgres@${host}:${port}/postgres`,
    port,
    folder,
    program: need('pgbouncer').path,
    arguments: [join(folder, 'pgbouncer.ini')],
    ...(user ? { user } : {}),
    quit: 'SIGINT',
    ready: () => canLogIn({ host, port }),
  })
}

export interface PooledPostgres extends Cluster {
  readonly bouncer: Server
  readonly postgres: Server
}

/** A pooler with a database server of its own behind it; the address is the pooler's. */
export async function startPooledPostgres(): Promise<PooledPostgres> {
  const postgres = await startPostgres()
  const bouncer = await orStop(postgres, startPgBouncer({ postgres }))
  return { ...clusterOf('pgbouncer', 'postgres', [bouncer, postgres]), url: bouncer.url, bouncer, postgres }
}
