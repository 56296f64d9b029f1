/**
 * Fences over HTTP: a service reads the fence of a request, and answers a refusal with a problem document.
 *
 * The fence is a bearer secret: whoever reads it can write with it. Use TLS, and let no log keep the header.
 */
export type { HeaderSource, Problem, ProblemDocument } from '../base/http.ts'
export { problemOf } from './http/problem.ts'
export { type FenceTrust, type ReadFenceOptions, readFence } from './http/read-fence.ts'
