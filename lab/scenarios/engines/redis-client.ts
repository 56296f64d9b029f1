/** The client that a lab process speaks to Redis with, as a user would have it. */
import { once } from 'node:events'
import { Redis } from 'ioredis'

/** Resolves when it is connected: on a busy machine that may take longer than what a first request is given. */
export async function connect(url: string): Promise<Redis> {
  const client = new Redis(url)
  // Servers are killed and cut off here on purpose; a caller that waits for an answer gets its own error.
  client.on('error', () => {})
  if (client.status !== 'ready') await once(client, 'ready')
  return client
}

export function urlOf({ host, port }: { readonly host: string; readonly port: number }): string {
  return `redis://${host}:${port}`
}
