// The packed library on Bun and Deno.

import { join } from 'node:path'
import { reach, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { type PackedProject, packedProject, runProgram } from '../lib/packed-project.ts'
import { library, root } from '../lib/repository.ts'
import { entriesOf } from '../lib/surface.ts'

const specifiers = entriesOf(library).map(({ specifier }) => specifier)
const program = (name: string) => join(root, 'node_modules/.bin', name)

const runtimes = [
  { name: 'Bun', command: [program('bun'), 'run'], version: 'Bun.version' },
  {
    name: 'Deno',
    command: [program('deno'), 'run', '--allow-all', '--node-modules-dir=manual', '--no-lock'],
    version: 'Deno.version.deno',
  },
] as const

describe.each(runtimes)('$name', ({ command: [command, ...args], version }) => {
  async function runIn({ folder, write }: PackedProject, name: string, text: string): Promise<string> {
    const file = write(
      name,
      `if (typeof ${version} !== 'string') throw new Error('another runtime')\n${text}`,
    )
    const env = { DENO_NO_UPDATE_CHECK: '1', DENO_DIR: join(folder, '.deno'), NO_COLOR: '1' }
    const { status, stdout, stderr } = await runProgram(command, [...args, file], { cwd: folder, env })
    expect(status, stderr).toBe(0)
    return stdout
  }

  const run = (text: string, packages: readonly string[] = []) =>
    runIn(packedProject({ packages }), 'program.js', text)

  test('every entry point loads, and says nothing', async () => {
    const imports = specifiers.map((specifier) => `await import('${specifier}')`).join('\n')
    expect(await run(imports)).toBe('')
  })

  test.each(['memory:', 'sqlite:locks.db'])('two lockers exclude each other on %s', async (url) => {
    const printed = await run(`
      import { createLocker, openLocker, isHoldfastError } from 'holdfast'
      import { memory, MemoryEngine } from 'holdfast/memory'
      import { DatabaseSync } from 'node:sqlite'
      import { sqliteGuard } from 'holdfast/guards/sqlite'
      const url = '${url}'
      const engine = new MemoryEngine()
      const open = async () => url === 'memory:' ? createLocker(memory({ engine })) : await openLocker(url, { require: 'fenced' })
      const [one, other] = [await open(), await open()]
      const first = await one.acquire('sku:42', { ttlMs: 2_000 })
      console.log('busy:', await other.tryAcquire('sku:42'))
      const waiting = other.acquire('sku:42')
      await first.ensure(1_000)
      await first.release()
      const second = await waiting
      console.log('handed over:', second.state, second.fence.token > first.fence.token)
      const guard = sqliteGuard({ path: 'shop.db' })
      const busy = new DatabaseSync('shop.db')
      busy.exec('BEGIN IMMEDIATE')
      setTimeout(() => busy.exec('ROLLBACK'), 100)
      await guard.run(second, (tx) => tx.exec('CREATE TABLE t (n INTEGER)'))
      await guard.run(first.fence, () => {}).catch((error) => console.log(error.name, isHoldfastError(error, 'FENCE_STALE')))
      await Promise.all([one.close(), other.close()])
      console.log('closed')
    `)
    expect(printed).toBe('busy: null\nhanded over: held true\nFenceStaleError true\nclosed\n')
  })

  // Their monotonic clocks count from the start of the process, so processes cannot agree on when a lease ends (T71, restarts of the machine).
  test('one process has a SQLite file at a time, and tokens go on', async () => {
    const project = packedProject()
    const open = `
      import { existsSync, writeFileSync } from 'node:fs'
      import { openLocker } from 'holdfast'
      const until = async (file) => { while (!existsSync(file)) await new Promise((resolve) => setTimeout(resolve, 10)) }
      const open = () => openLocker('sqlite:locks.db', { require: 'fenced' })
    `
    const first = runIn(
      project,
      'first.js',
      `${open}
      const locker = await open()
      const lease = await locker.acquire('sku:42')
      writeFileSync('held', '')
      await until('refused')
      console.log(lease.state, lease.fence.token)
      process.exit() // the name is not released
      `,
    )
    const second = await runIn(
      project,
      'second.js',
      `${open}
      await until('held')
      await open().catch((error) => console.log(error.code, error.message))
      writeFileSync('refused', '')
      `,
    )
    expect(second).toMatch(/^UNSUPPORTED sqlite: .* is open in another process\. Bun and Deno/)
    expect(await first).toBe('held 1n\n')
    const third = `${open}
      const locker = await open()
      const lease = await locker.acquire('sku:42', { waitMs: 0 })
      console.log(lease.fence.token > 1n)
      await locker.close()
    `
    expect(await runIn(project, 'third.js', third)).toBe('true\n')
  })

  test('idempotency keys in a SQLite file are refused', async () => {
    const printed = await run(`
      import { sqliteIdempotent } from 'holdfast/lockfree/sqlite'
      try { sqliteIdempotent({ path: 'keys.db' }) } catch (error) { console.log(error.code) }
    `)
    expect(printed).toBe('UNSUPPORTED\n')
  })

  test('openLocker says which package is missing', async () => {
    const printed = await run(`
      import { openLocker } from 'holdfast'
      await openLocker('redis://127.0.0.1:1').catch((error) => console.log(error.message))
    `)
    expect(printed).toMatch(
      /^redis: needs a client library to connect with\. Install one of them: npm install ioredis/,
    )
  })

  test.runIf(wanted('redis'))('a lock is handed over on Redis', async () => {
    await using server = await reach('redis')
    const printed = await run(
      `
      import { openLocker } from 'holdfast'
      const [one, other] = [await openLocker('${server.url}'), await openLocker('${server.url}')]
      const first = await one.acquire('sku:42')
      const waiting = other.acquire('sku:42')
      await first.release()
      console.log((await waiting).state)
      await Promise.all([one.close(), other.close()])
      console.log('closed')
    `,
      ['ioredis'],
    )
    expect(printed).toBe('held\nclosed\n')
  })
})
