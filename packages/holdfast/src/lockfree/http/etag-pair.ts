/**
 * Read and write for `optimisticUpdate`, for a resource of an HTTP service that has ETags and obeys `If-Match`.
 *
 * ```ts
 * const stock = etagPair('https://stock.internal/stock/42', { fetch })
 * await optimisticUpdate(stock.read, (row) => stock.write(row, JSON.stringify(less(JSON.parse(row.body)))))
 * ```
 *
 * An answer that is lost is an error and never a second try: the next read would find what this write has left, and change it twice.
 */
import { type Clock, systemClock } from '../../base/clock.ts'
import { defaults } from '../../base/defaults.ts'
import {
  BackendUnavailableError,
  type CallOutcome,
  InvalidArgumentError,
  UnsupportedError,
} from '../../base/errors.ts'
import { checkFunction, checkInteger, checkKnownOptions } from '../../base/options.ts'
import { settledWithin } from '../../base/within.ts'

export interface EtagRow {
  readonly body: string
  readonly etag: string
  /** Sent back with the write. */
  readonly contentType: string | null
}

export interface EtagPair {
  /** Null if there is no such resource (404, 410). */
  read(): Promise<EtagRow | null>
  /** False if the resource has changed since it was read (412, 409), or is gone. */
  write(row: EtagRow, body: string): Promise<boolean>
}

export interface EtagPairOptions {
  /** The platform's own, or one that adds credentials. It must not send a request again by itself. */
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>
  /** Default PUT. */
  readonly method?: 'PUT' | 'PATCH' | 'POST'
  /** For each request. Default 5,000. */
  readonly callTimeoutMs?: number
  readonly clock?: Clock
}

const gone: ReadonlySet<number> = new Set([404, 410])
const changed: ReadonlySet<number> = new Set([404, 409, 410, 412])
/** Refusals of a moment, after which a proxy may still have passed the request on. */
const unclear: ReadonlySet<number> = new Set([408, 425, 429])

export function etagPair(url: string, options: EtagPairOptions): EtagPair {
  checkKnownOptions('etagPair options', options, ['fetch', 'method', 'callTimeoutMs', 'clock'])
  const { fetch, method = 'PUT', clock = systemClock } = options
  checkFunction('fetch', fetch)
  if (!URL.canParse(url)) throw new InvalidArgumentError('url', 'must be an absolute URL.')
  if (!['PUT', 'PATCH', 'POST'].includes(method))
    throw new InvalidArgumentError('method', 'must be PUT, PATCH or POST.')
  const limitMs = checkInteger('callTimeoutMs', options.callTimeoutMs ?? defaults.callTimeoutMs, { min: 1 })
  // Neither a password in the URL nor what stands behind the question mark belongs into a message.
  const { origin, pathname } = new URL(url)
  const failure = (what: string, outcome: CallOutcome, cause?: unknown) =>
    new BackendUnavailableError('http', `${origin}${pathname} ${what}`, outcome, { cause })

  const ask = async <T>(init: RequestInit, lost: CallOutcome, use: (response: Response) => Promise<T>) => {
    const stop = new AbortController()
    const work = async () => use(await fetch(url, { ...init, signal: stop.signal }))
    try {
      return await settledWithin(clock, limitMs, work(), { keepsProcessAlive: true })
    } catch (error) {
      if (error instanceof BackendUnavailableError || error instanceof UnsupportedError) throw error
      throw failure('gave no answer', lost, error)
    } finally {
      stop.abort()
    }
  }

  return {
    read: () =>
      ask({ method: 'GET' }, 'not-applied', async (response) => {
        if (gone.has(response.status)) return null
        if (!response.ok) throw failure(`answered ${response.status}`, 'not-applied')
        const etag = response.headers.get('etag')
        if (etag === null || etag.startsWith('W/'))
          throw new UnsupportedError(
            `${origin}${pathname} answers ${etag === null ? 'without an ETag' : 'with a weak ETag'}, so no write can name what it was computed from.`,
          )
        return { body: await response.text(), etag, contentType: response.headers.get('content-type') }
      }),
    write({ etag, contentType }, body) {
      const headers = { 'if-match': etag, ...(contentType === null ? {} : { 'content-type': contentType }) }
      // A redirect would send it a second time.
      return ask({ method, headers, body, redirect: 'manual' }, 'unknown', async ({ ok, status }) => {
        if (ok) return true
        if (changed.has(status)) return false
        const outcome = status >= 500 || unclear.has(status) ? 'unknown' : 'not-applied'
        throw failure(`answered ${status}`, outcome)
      })
    },
  }
}
