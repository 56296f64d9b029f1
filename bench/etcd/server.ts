import { fetchJson, startEtcd } from 'holdfast-lab/servers'
import type { Servers } from '../subject.ts'

export async function startServers(): Promise<Servers> {
  const cluster = await startEtcd({ members: 3, fsync: true })
  const urls = cluster.members.map(({ url }) => url)
  const { etcdserver } = await fetchJson<{ etcdserver: string }>(`${urls[0]}/version`)
  return {
    urls,
    pids: cluster.members.map(({ pid }) => pid),
    words: `Three members of etcd ${etcdserver} on this machine, each with its own data folder, fsync on`,
    place: async (name) => ({ urls, namespace: name }),
    stop: () => cluster.stop(),
  }
}
