// Lockers on each engine, from the sources, for `npm run size`.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startPostgres, startRedis } from 'holdfast-lab/servers'
import { Redis } from 'ioredis'
import pg from 'pg'
import { memory } from '../../packages/holdfast/src/engines/memory/index.ts'
import { postgres } from '../../packages/holdfast/src/engines/postgres/locks/index.ts'
import { redis } from '../../packages/holdfast/src/engines/redis/locks/index.ts'
import { sqlite } from '../../packages/holdfast/src/engines/sqlite/locks/index.ts'
import { createLocker, type Locker } from '../../packages/holdfast/src/index.ts'

export interface Opened extends AsyncDisposable {
  readonly locker: Pick<Locker, 'acquire' | 'close'>
}

export async function openForCounting(backend: string): Promise<Opened> {
  if (backend === 'memory') return opened(createLocker(memory()))
  if (backend === 'sqlite') {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-size-'))
    const remove = () => rmSync(folder, { recursive: true, force: true })
    return opened(createLocker(await sqlite({ path: join(folder, 'locks.db') })), remove)
  }
  if (backend === 'redis') {
    const server = await startRedis()
    const client = new Redis(server.url)
    return opened(
      createLocker(redis({ client })),
      () => client.disconnect(),
      () => server.stop(),
    )
  }
  const server = await startPostgres()
  const client = new pg.Pool({ connectionString: server.url })
  return opened(
    createLocker(await postgres({ client })),
    () => client.end(),
    () => server.stop(),
  )
}

function opened(locker: Opened['locker'], ...closing: (() => unknown)[]): Opened {
  return {
    locker,
    async [Symbol.asyncDispose]() {
      await locker.close()
      for (const close of closing) await close()
    },
  }
}
