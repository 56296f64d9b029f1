/** Handlers in the style of each server, whose types are inferred. Checked by the type check of the repository; never run. */
import { createServer } from 'node:http'
import express, { type Request as ExpressRequest } from 'express'
import fastify from 'fastify'
import { type Context, Hono } from 'hono'
import type { Fence } from '../../base/fence.ts'
import type { FencedLease, UnfencedLease } from '../../base/types.ts'
import { fenced, fencedFastify, fencedFetch, fencedWeb } from '../http.ts'
import { memoryGuard } from '../memory.ts'

declare const lease: FencedLease
declare const unfenced: UnfencedLease
const guard = memoryGuard<string>()
const write = (fence: Fence) => guard.run(fence, (tx) => tx.set('a', 'b'))
const trusted = { guard, unsigned: true } as const

express().put(
  '/stock/:sku',
  fenced(
    { ...trusted, name: (req: ExpressRequest<{ sku: string }>) => `sku:${req.params.sku}` },
    async (req, res, { fence }) => {
      await write(fence)
      res.send(req.params.sku)
    },
  ),
)
createServer(
  fenced({ ...trusted, name: (request) => `sku:${request.url}` }, async (request, response, { fence }) => {
    for await (const chunk of request) response.write(chunk)
    await write(fence)
  }),
)
fastify().put<{ Params: { sku: string } }>(
  '/stock/:sku',
  fencedFastify(
    { ...trusted, name: (request) => `sku:${request.params.sku}` },
    async (_request, reply, { fence }) => {
      await write(fence)
      return reply.code(204).send()
    },
  ),
)
new Hono().put(
  '/stock/:sku',
  fencedWeb({ ...trusted, name: (c: Context) => `sku:${c.req.param('sku')}` }, async (c, { fence }) => {
    await write(fence)
    return c.body(null, 204)
  }),
)
export const route = fencedWeb({ ...trusted, name: ({ url }) => url }, async (request, { fence }) => {
  await write(fence)
  return new Response(await request.text())
})

export const open = fenced(
  { ...trusted, name: () => 'n', reads: 'open' },
  async (_request, _response, { fence }) => {
    // @ts-expect-error a read that is open may come without a fence
    await write(fence)
  },
)
export const before = fenced(
  { ...trusted, name: () => 'n', checkBefore: true },
  async (_request, _response, context) => {
    const judged: Fence = context.checked
    // @ts-expect-error a fence that was judged before has another name: the effect is a second step
    await write(context.fence)
    return judged
  },
)

fencedFetch(lease)
// @ts-expect-error an unfenced lease is no proof
fencedFetch(unfenced)
// @ts-expect-error the name comes from the route, so it must be said how
fenced(trusted, () => {})
