import { psql, startPostgres } from 'holdfast-lab/servers'
import type { Servers, ServersOptions } from '../subject.ts'

export async function startServers({ countsCommands }: ServersOptions = {}): Promise<Servers> {
  const settings = { shared_preload_libraries: 'pg_stat_statements' }
  const server = await startPostgres({ fsync: true, ...(countsCommands && { settings }) })
  if (countsCommands) await psql(server, 'CREATE EXTENSION pg_stat_statements')
  const version = await psql(server, 'SHOW server_version')
  return {
    urls: [server.url],
    pids: [server.pid],
    words: `One PostgreSQL ${version} on this machine, fsync and synchronous_commit on`,
    async place(name) {
      // A database each: schema, advisory locks and notifications are then separate.
      await psql(server, `CREATE DATABASE ${name}`)
      const url = new URL(server.url)
      url.pathname = name
      return { urls: [url.href], namespace: name }
    },
    // Those of this function are in another database.
    commandsOf: async () => async () => {
      const sums = await psql(
        server,
        `SELECT coalesce(sum(calls), 0) || ' ' || coalesce(sum(total_exec_time) * 1000, 0)
          FROM pg_stat_statements JOIN pg_database ON oid = dbid WHERE datname <> 'postgres'`,
      )
      const [count, us] = sums.split(' ')
      return { count: Number(count), us: Number(us) }
    },
    stop: () => server.stop(),
  }
}
