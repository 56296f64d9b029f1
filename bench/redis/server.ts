import { redisCall } from 'holdfast-lab/servers'

export async function versionOf(server: { readonly host: string; readonly port: number }): Promise<string> {
  const info = String(await redisCall(server, 'INFO', 'server'))
  return /redis_version:(\S+)/.exec(info)?.[1] ?? 'of unknown version'
}
