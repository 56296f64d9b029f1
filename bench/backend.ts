/** A backend that is ready to be measured: its servers run, on another core than this process. */
import { readdirSync } from 'node:fs'
import { basename, join } from 'node:path'
import { startNetwork } from './network.ts'
import { pinApart } from './pinning.ts'
import type { Place, Servers, ServersOptions, Subject, SubjectModule } from './subject.ts'

const folder = join(import.meta.dirname, 'subjects')

export const available = readdirSync(folder).map((file) => basename(file, '.ts'))

export interface Backend {
  /** Of its servers. */
  readonly pids: readonly number[]
  /** Sentences about the servers. */
  readonly remarks: readonly string[]
  /** A place with its own data. */
  place(name: string): Promise<Place>
  subject(place: Place): Subject
  readonly commandsOf?: Servers['commandsOf']
  stop(): Promise<void>
}

/** `rttMs`: the round trip of a network between client and servers; left out: loopback. */
export async function startBackend(name: string, rttMs?: number, options?: ServersOptions): Promise<Backend> {
  const { startServers, subject } = await moduleOf(name)
  if (startServers === undefined) {
    const place = async (namespace: string) => ({ urls: [], namespace })
    return { pids: [], remarks: [], place, subject, async stop() {} }
  }
  const servers = await startServers(options)
  const network = rttMs === undefined ? undefined : await startNetwork(servers.urls, rttMs)
  const pinning = pinApart(servers.pids, network?.pid)
  return {
    pids: servers.pids,
    remarks: [servers.words, pinning.words, ...(network ? [network.words] : [])],
    async place(namespace) {
      const place = await servers.place(namespace)
      return network ? { ...place, urls: place.urls.map((url) => network.through(url)) } : place
    },
    subject,
    ...(servers.commandsOf && { commandsOf: servers.commandsOf }),
    async stop() {
      pinning.undo()
      network?.stop()
      await servers.stop()
    },
  }
}

export async function hasServers(name: string): Promise<boolean> {
  return (await moduleOf(name)).startServers !== undefined
}

export async function subjectAt(name: string, place: Place): Promise<Subject> {
  return (await moduleOf(name)).subject(place)
}

async function moduleOf(name: string): Promise<SubjectModule> {
  return (await import(join(folder, `${name}.ts`))) as SubjectModule
}
