/** A stock of units behind a guard, as a service on any server. */
import type { Request } from 'express'
import { makeFence } from '../../src/base/fence.ts'
import { type FenceKey, formatFence } from '../../src/base/fence-text.ts'
import { fenced, fencedFastify, fencedWeb } from '../../src/guards/http.ts'
import { type MemoryGuard, MemoryResource, memoryGuard } from '../../src/guards/memory.ts'
import type { Fence } from '../../src/index.ts'
import { type Running, type ServerName, startServer } from './servers.ts'

export const key: FenceKey = { id: 'k1', secret: new Uint8Array(32).fill(7) }

export function fenceOf(
  token: bigint,
  { name = 'sku:42', issuer = 'stock', grant = `g${token}` } = {},
): Fence {
  return makeFence({ issuer, name, mode: 'exclusive', token, grant })
}

export function signedText(token: bigint, fields: Parameters<typeof fenceOf>[1] = {}): string {
  return formatFence(fenceOf(token, fields), { signWith: key })
}

export interface Stock {
  readonly guard: MemoryGuard<string>
  /** The committed units. */
  units(sku: string): string | undefined
  write(fence: Fence, sku: string, units: string): Promise<void>
  /** Past the guard, as a handler with `checkBefore` does. */
  writeUnchecked(sku: string, units: string): Promise<void>
}

export function createStock(issuers: readonly string[] = ['stock']): Stock {
  const resource = new MemoryResource<string>()
  const guard = memoryGuard({ resource, name: 'stock', issuers })
  return {
    guard,
    units: (sku) => resource.get(sku),
    write: (fence, sku, units) => guard.run(fence, (tx) => tx.set(sku, units)),
    writeUnchecked: (sku, units) => resource.transaction((tx) => tx.set(sku, units)),
  }
}

type Mode = { readonly reads?: 'open'; readonly checkBefore?: boolean }

const skuOf = (url = '') => decodeURIComponent(new URL(url, 'http://any').pathname.split('/')[2] ?? '')
const nameOf = (url = '') => `sku:${skuOf(url)}`

/** PUT stores the body as units, GET answers them, POST fails. */
export function serveStock(server: ServerName, stock: Stock, mode: Mode = {}): Promise<Running> {
  const options = { guard: stock.guard, keys: [key], ...mode } as const
  const answer = async (method = '', sku: string, fence: Fence | null, body: () => Promise<string>) => {
    if (method === 'POST') throw new Error('the handler has failed')
    if (method !== 'PUT') return stock.units(sku) ?? 'none'
    const units = await body()
    if (fence === null) await stock.writeUnchecked(sku, units)
    else await stock.write(fence, sku, units)
    return 'stored'
  }
  const shown = (context: object) => ('fence' in context ? (context.fence as Fence | null) : null)
  const textOf = async (stream: AsyncIterable<Uint8Array>) => {
    const chunks: Uint8Array[] = []
    for await (const chunk of stream) chunks.push(chunk)
    return Buffer.concat(chunks).toString()
  }
  return startServer(server, {
    node: (() => {
      const handle = fenced(
        { ...options, name: (request) => nameOf(request.url) },
        async (request, response, context) => {
          response.setHeader('etag', '"1"')
          response.end(
            await answer(request.method, skuOf(request.url), shown(context), () => textOf(request)),
          )
        },
      )
      return async (request, response) => {
        await handle(request, response).catch(() => response.writeHead(500).end())
      }
    })(),
    express: fenced(
      { ...options, name: (request: Request<{ sku: string }>) => `sku:${request.params.sku}` },
      async (request, response, context) => {
        response.send(await answer(request.method, request.params.sku, shown(context), () => textOf(request)))
      },
    ),
    fastify: fencedFastify(
      { ...options, name: (request) => nameOf(request.url) },
      (request, _reply, context) =>
        answer(request.method, skuOf(request.url), shown(context), async () => String(request.body ?? '')),
    ),
    hono: fencedWeb({ ...options, name: (c) => `sku:${c.req.param('sku')}` }, async (c, context) =>
      c.body(await answer(c.req.method, c.req.param('sku') ?? '', shown(context), () => c.req.text())),
    ),
    web: (request) =>
      fencedWeb(
        { ...options, name: ({ url }) => nameOf(url) },
        async (asked, context) =>
          new Response(await answer(asked.method, skuOf(asked.url), shown(context), () => asked.text())),
      )(request).catch(() => new Response(null, { status: 500 })),
  })
}
