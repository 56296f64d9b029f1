import { redisCall, startRedisNodes } from 'holdfast-lab/servers'
import type { Servers } from '../subject.ts'
import { commandsOf } from './commands.ts'

/** Servers that know nothing of each other. */
export async function startServers(count: number): Promise<Servers> {
  const { members, stop } = await startRedisNodes(count)
  const [first] = members
  const version = first === undefined ? '' : await versionOf(first)
  const urls = members.map(({ url }) => url)
  return {
    urls,
    pids: members.map(({ pid }) => pid),
    words: `${count === 1 ? 'One' : `${count} times`} Redis ${version} on this machine, without persistence`,
    place: async (name) => ({ urls, namespace: name }),
    commandsOf: (probe) => commandsOf(members, probe),
    stop,
  }
}

async function versionOf(server: { readonly host: string; readonly port: number }): Promise<string> {
  const info = String(await redisCall(server, 'INFO', 'server'))
  return /redis_version:(\S+)/.exec(info)?.[1] ?? 'of unknown version'
}
