/** The client libraries, each opened in the same way, with their own defaults. */
import { Redis as Ioredis6 } from 'ioredis'
import { Redis as Ioredis5 } from 'ioredis5'
import { createClient as createClient6 } from 'redis'
import { createClient as createClient5 } from 'redis5'
import { nameAndVersion } from '../versions.ts'

export interface Opened<C> {
  readonly client: C
  /** At once, also while commands are in flight. */
  close(): void
}

export interface Library<C> {
  readonly name: string
  open(url: string): Promise<Opened<C>>
}

export const ioredis6: Library<Ioredis6> = {
  name: nameAndVersion('ioredis'),
  open: (url) => connected(new Ioredis6(url, { lazyConnect: true })),
}

export const ioredis5: Library<Ioredis5> = {
  name: nameAndVersion('ioredis5', 'ioredis'),
  open: (url) => connected(new Ioredis5(url, { lazyConnect: true })),
}

export const nodeRedis6 = {
  name: nameAndVersion('redis', 'node-redis'),
  async open(url: string) {
    const client = createClient6({ url })
    client.on('error', ignoreClosing)
    await client.connect()
    return { client, close: () => client.destroy() }
  },
}

export const nodeRedis5 = {
  name: nameAndVersion('redis5', 'node-redis'),
  async open(url: string) {
    const client = createClient5({ url })
    client.on('error', ignoreClosing)
    await client.connect()
    return { client, close: () => client.destroy() }
  },
}

export type Ioredis = Ioredis6
export type NodeRedis6 = Awaited<ReturnType<typeof nodeRedis6.open>>['client']

interface Connecting {
  connect(): Promise<void>
  on(event: 'error', listener: () => void): unknown
  disconnect(): void
}

async function connected<C extends Connecting>(client: C): Promise<Opened<C>> {
  client.on('error', ignoreClosing)
  await client.connect()
  return { client, close: () => client.disconnect() }
}

/** A command that fails says so itself; the event only tells that the server went away, which it does at the end. */
function ignoreClosing(): void {}
