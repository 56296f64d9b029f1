/** Certificates, and what a client of our own says when something else listens at its address, or is spoken to in the wrong way. */
import { readFileSync } from 'node:fs'
import { createServer as createWebServer } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Server } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { fileURLToPath } from 'node:url'
import { startRedis } from 'holdfast-lab/servers'
import { afterAll, describe, expect, test } from 'vitest'
import { openLocker } from '../src/open.ts'

const fixture = (file: string) => fileURLToPath(new URL(`etcd/fixtures/${file}`, import.meta.url))
const tls = { ca: fixture('ca.pem'), cert: fixture('server.pem'), key: fixture('server-key.pem') }
const certificate = { cert: fixture('client.pem'), key: fixture('client-key.pem') }

/** Starts what listens, and resolves to its port. */
type Start = () => Promise<number>
export type WrongAddress = readonly [what: string, scheme: string, start: Start, RegExp]

export interface Addresses {
  /** `etcd`: also the scheme of URLs; with an `s` for TLS. */
  readonly name: string
  /** As messages say it. */
  readonly protocol: string
  /** The last part of each URL. */
  readonly query?: string
  readonly start: (options: { tls?: typeof tls }) => Promise<AsyncDisposable & Pick<Cluster, 'members'>>
  /** TLS and plain text on one port. */
  readonly servesBoth?: boolean
  /** Findings that a server with TLS has: something is switched off. */
  readonly unseen?: readonly string[]
  readonly more?: (listening: (server: Server) => Start) => readonly WrongAddress[]
}

interface Cluster {
  readonly members: readonly { readonly port: number }[]
}

export function describeAddresses({
  name,
  protocol,
  query,
  start,
  servesBoth,
  unseen = [],
  more,
}: Addresses): void {
  describe('the address', () => {
    const stack = new AsyncDisposableStack()
    afterAll(() => stack.disposeAsync())
    const once = (started: Start): Start => {
      let port: Promise<number> | undefined
      return () => {
        port ??= started()
        return port
      }
    }
    const listening = (server: Server) =>
      once(async () => {
        await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
        stack.defer(() => void server.close())
        return (server.address() as AddressInfo).port
      })
    const cluster = (options: { tls?: typeof tls }) =>
      once(async () => stack.use(await start(options)).members[0]?.port ?? 0)
    const [plain, secure] = [cluster({}), cluster({ tls })]
    const redis = once(async () => stack.use(await startRedis()).port)
    const web = () => listening(createWebServer((_request, response) => response.end('hello')))
    const silent = () => listening(createTcpServer(() => {}))
    const noProtocol = new RegExp(`does not speak ${protocol}.*Check host and port`)
    const noTls = new RegExp(`does not begin TLS.*write ${name}://.*Check host and port`)

    const rows: readonly (WrongAddress | readonly [...WrongAddress, options: string])[] = [
      ['nothing listens', name, async () => 1, /nothing listens at .*Start .*\. Check host and port/],
      ['a web server listens', name, web(), noProtocol],
      // ZooKeeper's requests are no commands, and Redis waits for their end.
      ['Redis listens', name, redis, new RegExp(`${noProtocol.source}|says nothing.*Check host and port`)],
      ['Redis listens, with TLS', `${name}s`, redis, noTls],
      [`${name} listens without TLS`, `${name}s`, plain, noTls],
      [
        `${name} listens with TLS`,
        name,
        servesBoth
          ? listening(createTlsServer({ cert: readFileSync(tls.cert), key: readFileSync(tls.key) }))
          : secure,
        new RegExp(`does not speak ${protocol}.*write ${name}s://`),
      ],
      [
        'the authority is unknown',
        `${name}s`,
        secure,
        /certificate that is not accepted.*`ca`/,
        `${new URLSearchParams(certificate)}`,
      ],
      [
        'a certificate is required',
        `${name}s`,
        secure,
        /requires? a certificate.*`cert` and `key`/,
        `ca=${tls.ca}`,
      ],
      ['a member is stopped', name, silent(), /says nothing: it is stopped/],
      ...(more?.(listening) ?? []),
    ]
    test('of TLS, with certificates on both sides that a URL names: a lease is taken, and the diagnosis looks everywhere', async () => {
      const url = `${name}s://127.0.0.1:${await secure()}?${new URLSearchParams({ ca: tls.ca, ...certificate })}`
      await using locker = await openLocker(url, { require: ['fenced', 'cluster'] })
      const lease = await locker.acquire('x')
      expect(await lease.release()).toBe('released')
      const codes = (await locker.diagnose()).map(({ code }) => code)
      expect(codes.filter((code) => /DOWN|OFF|UNREADABLE/.test(code))).toEqual(unseen)
      await expect(openLocker(`${name}://127.0.0.1?ca=${tls.ca}`)).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
      })
    })

    test.concurrent.each(rows)(
      'where %s: an error that says what to do',
      async (_what, scheme, start, message, options = '') => {
        const asked = [query, options].filter(Boolean).join('&')
        const opening = openLocker(`${scheme}://127.0.0.1:${await start()}?${asked}`)
        await expect(opening).rejects.toMatchObject({
          code: 'BACKEND_UNAVAILABLE',
          outcome: 'not-applied',
          message: expect.stringMatching(message),
        })
      },
    )
  })
}
