/** A Lua script, known to the server by the SHA-1 of its text. */
import { createHash } from 'node:crypto'

export interface RedisScript {
  readonly source: string
  readonly sha1: string
}

export function redisScript(source: string): RedisScript {
  return { source, sha1: createHash('sha1').update(source).digest('hex') }
}
