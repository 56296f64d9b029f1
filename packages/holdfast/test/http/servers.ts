/** One service on each server that the adapters are for. */
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import express from 'express'
import fastify, { type RouteHandlerMethod } from 'fastify'
import { type Handler, Hono } from 'hono'

export const servers = ['node', 'express', 'fastify', 'hono', 'web'] as const
export type ServerName = (typeof servers)[number]

export interface Running extends AsyncDisposable {
  readonly url: string
}

/** What a server runs for `/stock/:sku`, in its own style. */
export interface Routes {
  node(request: IncomingMessage, response: ServerResponse): Promise<void>
  express: express.RequestHandler<{ sku: string }>
  fastify: RouteHandlerMethod
  hono: Handler
  web(request: Request): Promise<Response>
}

export async function startServer(name: ServerName, routes: Pick<Routes, typeof name>): Promise<Running> {
  if (name === 'fastify') {
    const app = fastify()
    // Bodies are bytes: what a test sends need not be JSON.
    app.removeAllContentTypeParsers()
    app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))
    app.all('/stock/:sku', (routes as Routes).fastify)
    const url = await app.listen({ port: 0, host: '127.0.0.1' })
    return { url, [Symbol.asyncDispose]: () => app.close() }
  }
  if (name === 'node') return listen(createServer((routes as Routes).node as RequestListener))
  if (name === 'express') {
    const app = express()
    app.all('/stock/:sku', (routes as Routes).express)
    return listen(createServer(app))
  }
  const app = new Hono()
  if (name === 'hono') app.all('/stock/:sku', (routes as Routes).hono)
  const { promise, resolve } = Promise.withResolvers<void>()
  const fetch = name === 'hono' ? app.fetch : (routes as Routes).web
  const server = serve({ fetch, port: 0, hostname: '127.0.0.1' }, () => resolve()) as Server
  await promise
  return running(server)
}

async function listen(server: Server): Promise<Running> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return running(server)
}

function running(server: Server): Running {
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    [Symbol.asyncDispose]: () =>
      new Promise((resolve) => {
        server.closeAllConnections()
        server.close(() => resolve())
      }),
  }
}
