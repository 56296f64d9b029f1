/** The service of the benchmark: the same answer in five ways. */
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { fenced } from 'holdfast/guards/http'
import { memoryGuard } from 'holdfast/guards/memory'
import { sqliteGuard } from 'holdfast/guards/sqlite'

const key = { id: 'bench', secret: Buffer.from(process.argv[2] ?? '', 'base64') }
const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-http-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
process.on('SIGTERM', () => process.exit())

const database = new DatabaseSync(join(folder, 'stock.db'))
database.exec(
  'PRAGMA journal_mode = WAL; CREATE TABLE stock (sku INTEGER PRIMARY KEY, units INTEGER); INSERT INTO stock VALUES (42, 1)',
)
const update = database.prepare('UPDATE stock SET units = ? WHERE sku = 42')
// SQLite does not write what is there already.
let units = 0
const write = (body: string) => update.run(Number(body) + ++units)
const guards = { memory: memoryGuard<string>(), sqlite: sqliteGuard({ database }) }

async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = ''
  for await (const chunk of request) body += chunk
  return body
}
const done = (response: ServerResponse) => void response.writeHead(204).end()
const options = { guard: guards.memory, keys: [key], name: () => 'stock' }

const routes: Record<string, (request: IncomingMessage, response: ServerResponse) => unknown> = {
  '/bare': async (request, response) => {
    await bodyOf(request)
    done(response)
  },
  '/read': fenced(options, async (request, response) => {
    await bodyOf(request)
    done(response)
  }),
  '/memory': fenced(options, async (request, response, { fence }) => {
    const body = await bodyOf(request)
    await guards.memory.run(fence, (tx) => tx.set('42', body))
    done(response)
  }),
  '/sqlite': async (request, response) => {
    const body = await bodyOf(request)
    database.exec('BEGIN IMMEDIATE')
    write(body)
    database.exec('COMMIT')
    done(response)
  },
  '/sqlite-guarded': fenced({ ...options, guard: guards.sqlite }, async (request, response, { fence }) => {
    const body = await bodyOf(request)
    await guards.sqlite.run(fence, () => write(body))
    done(response)
  }),
}
const server = createServer((request, response) => void routes[request.url ?? '']?.(request, response))
server.listen(0, '127.0.0.1', () => process.send?.({ port: (server.address() as AddressInfo).port }))
process.on('message', () => {
  const { user, system } = process.cpuUsage()
  process.send?.({ cpuUs: user + system })
})
process.on('disconnect', () => process.exit())
