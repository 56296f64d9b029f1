import { psql, startPostgres } from 'holdfast-lab/servers'
import type { Servers } from '../subject.ts'

export async function startServers(): Promise<Servers> {
  const server = await startPostgres({ fsync: true })
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
    stop: () => server.stop(),
  }
}
