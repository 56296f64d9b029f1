/**
 * Fences over HTTP: a service that a stale client cannot pass, and a `fetch` that shows the fence of a lease.
 *
 * ```ts
 * app.put('/stock/:sku', fenced({ guard, keys, name: (req) => `sku:${req.params.sku}` }, async (req, res, { fence }) => {
 *   await guard.run(fence, (tx) => setUnits(tx, req.params.sku, req.body.units))
 *   res.sendStatus(204)
 * }))
 *
 * await fencedFetch(lease, { signWith: key })('https://stock.internal/stock/42', { method: 'PUT', body })
 * ```
 *
 * The fence is a bearer secret: whoever reads it can write with it. Use TLS, and let no log keep the header.
 */
export type {
  FastifyReply,
  HeaderSource,
  HttpAnswer,
  NodeRequest,
  NodeResponse,
  Problem,
  ProblemDocument,
  WebInput,
} from '../base/http.ts'
export {
  type FencedContext,
  type FencedMode,
  type FencedOptions,
  fenced,
  fencedFastify,
  fencedWeb,
  type ServiceGuard,
} from './http/fenced.ts'
export { type FencedFetchOptions, fencedFetch } from './http/fenced-fetch.ts'
export { problemOf } from './http/problem.ts'
export { type FenceTrust, type ReadFenceOptions, readFence } from './http/read-fence.ts'
