import { startZooKeeper } from 'holdfast-lab/servers'
import type { Servers } from '../subject.ts'

export async function startServers(): Promise<Servers> {
  const cluster = await startZooKeeper({
    members: 3,
    fsync: true,
    // As by default in production. Ours are closer together for tests.
    tickMs: 2_000,
    settings: { maxClientCnxns: '0' },
  })
  const urls = cluster.members.map(({ host, port }) => `${host}:${port}`)
  return {
    urls,
    pids: cluster.members.map(({ pid }) => pid),
    words: 'Three members of ZooKeeper on this machine, each with its own data folder, fsync on',
    place: async (name) => ({ urls, namespace: name }),
    stop: () => cluster.stop(),
  }
}
