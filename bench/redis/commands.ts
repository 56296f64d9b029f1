/**
 * Commands that clients send to Redis, and their time at the server. `INFO commandstats` also counts the commands that scripts
 * call, and their time is part of the script's. `MONITOR` tells both apart, so it watches a few pairs beforehand.
 */
import { connect } from 'node:net'
import { redisCall } from 'holdfast-lab/servers'
import type { Commands } from '../subject.ts'

interface Address {
  readonly host: string
  readonly port: number
}

interface Calls {
  readonly byClients: number
  readonly byScripts: number
}

export async function commandsOf(
  servers: readonly Address[],
  probe: () => Promise<void>,
): Promise<() => Promise<Commands>> {
  const monitors = await Promise.all(servers.map(startMonitor))
  await probe()
  // A round trip to each server, after which all lines of the probe have been written.
  await Promise.all(servers.map((server) => redisCall(server, 'ECHO', endOfProbe)))
  const calls = callsIn((await Promise.all(monitors.map((stop) => stop()))).flat())
  return async () => {
    const infos = await Promise.all(servers.map((server) => redisCall(server, 'INFO', 'commandstats')))
    return infos
      .map((info) => clientsPart(String(info), calls))
      .reduce((sum, part) => ({ count: sum.count + part.count, us: sum.us + part.us }))
  }
}

const endOfProbe = 'end of the probe'

/** The stop function answers with the lines that were seen. */
async function startMonitor({ host, port }: Address): Promise<() => Promise<string[]>> {
  const socket = connect({ host, port })
  let text = ''
  const waiting: { part: string; resolve: () => void }[] = []
  socket.on('data', (chunk) => {
    text += chunk
    for (const { part, resolve } of waiting) if (text.includes(part)) resolve()
  })
  const seen = (part: string) => new Promise<void>((resolve) => waiting.push({ part, resolve }))
  const ready = seen('+OK')
  const ended = seen(endOfProbe)
  socket.write('MONITOR\r\n')
  await ready
  return async () => {
    await ended
    socket.destroy()
    return text.split('\r\n').filter((line) => !line.includes(endOfProbe))
  }
}

/** How often clients, and how often scripts, called each command. */
export function callsIn(lines: readonly string[]): Map<string, Calls> {
  const calls = new Map<string, Calls>()
  for (const line of lines) {
    const [, caller, command = ''] = /^\+[\d.]+ \[\d+ ([^\]]+)\] "([^"]+)"/.exec(line) ?? []
    if (caller === undefined) continue
    const name = command.toLowerCase()
    const { byClients, byScripts } = calls.get(name) ?? { byClients: 0, byScripts: 0 }
    const isScript = caller === 'lua'
    calls.set(name, { byClients: byClients + (isScript ? 0 : 1), byScripts: byScripts + (isScript ? 1 : 0) })
  }
  return calls
}

/** The part of the figures that belongs to commands of clients; a command that both call is shared out as in the probe. */
export function clientsPart(info: string, calls: ReadonlyMap<string, Calls>): Commands {
  let [count, us] = [0, 0]
  for (const [, name = '', times, usec] of info.matchAll(/^cmdstat_([^:|]+)[^:]*:calls=(\d+),usec=(\d+)/gm)) {
    const { byClients, byScripts } = calls.get(name) ?? { byClients: 0, byScripts: 0 }
    if (byClients === 0) continue
    const share = byClients / (byClients + byScripts)
    count += share * Number(times)
    us += share * Number(usec)
  }
  return { count, us }
}
