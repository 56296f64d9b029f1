/** `holdfast fence-proxy`: keeps stale holders from a service that cannot be changed. */
import { once } from 'node:events'
import { fencingProxy } from 'holdfast/guards/proxy'
import { readKey } from './environment.ts'
import { usageError } from './exits.ts'
import { Signals } from './signals.ts'
import { say } from './terminal.ts'

export interface FenceProxyFlags {
  readonly marks: string
  readonly name: string
  readonly keyFile?: readonly string[]
  readonly unsigned?: boolean
  readonly listen: string
  readonly reads: 'fenced' | 'open'
  readonly limit: number
  readonly quarantine: number
}

/** Goes on until a signal comes, and then waits for the answers to what was forwarded. */
export async function fenceProxy(target: string, flags: FenceProxyFlags): Promise<number> {
  const { marks, name, keyFile = [], unsigned = false, listen, reads, limit, quarantine } = flags
  if (keyFile.length > 0 === unsigned)
    throw usageError('Say what is trusted: --key-file for signed fences, or --unsigned.')
  const [, host, port] = /^(.+):(\d{1,5})$/.exec(listen) ?? []
  if (host === undefined || Number(port) > 65_535)
    throw usageError('--listen must be host:port, such as 127.0.0.1:8080.')
  const { cancelled } = new Signals()
  const proxy = await fencingProxy({
    ...{ target, marks, reads, limitMs: limit, quarantineMs: quarantine, host, port: Number(port) },
    name: ({ url }) => nameFor(name, url),
    ...(unsigned
      ? { unsigned: true as const }
      : { keys: keyFile.map((path) => readKey(path, '--key-file')) }),
  })
  say(`${proxy.url} forwards to ${target}.`)
  if (!cancelled.aborted) await once(cancelled, 'abort')
  await proxy.close()
  return 0
}

/** `{2}` is the second segment of the path: `sku:{2}` names `sku:42` for `/stock/42`. */
export function nameFor(template: string, url = ''): string {
  const segments = url.replace(/[?#].*$/, '').split('/')
  return template.replaceAll(/\{(\d)\}/g, (_, index) => {
    const segment = decodeURIComponent(segments[Number(index)] ?? '')
    // A service may read /stock/42;a as /stock/42.
    if (segment === '' || segment.includes(';')) throw new Error(`the path has no plain segment ${index}`)
    return segment
  })
}
