import { fetchJson, startConsul } from 'holdfast-lab/servers'
import type { Servers } from '../subject.ts'

export async function startServers(): Promise<Servers> {
  const cluster = await startConsul({ members: 3 })
  const urls = cluster.members.map(({ url }) => url)
  const { Config } = await fetchJson<{ Config: { Version: string } }>(`${urls[0]}/v1/agent/self`)
  return {
    urls,
    pids: cluster.members.map(({ pid }) => pid),
    words: `Three servers of Consul ${Config.Version} on this machine, each with its own data folder, on disk`,
    place: async (name) => ({ urls, namespace: name }),
    stop: () => cluster.stop(),
  }
}
