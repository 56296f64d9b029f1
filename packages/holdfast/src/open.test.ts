import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, onTestFinished, test } from 'vitest'
import { callWith } from './base/aborting.ts'
import { type ErrorCode, isHoldfastError } from './base/errors.ts'
import type { AnyLocker } from './base/types.ts'
import { memory } from './engines/memory/index.ts'
import type { LockerUrl } from './kit/url.ts'
import { openBackend, openLocker } from './open.ts'

/** Opens it for the length of the test. */
async function open(...given: Parameters<typeof openLocker>): Promise<AnyLocker> {
  const locker = await openLocker(...given)
  onTestFinished(() => locker.close())
  return locker
}

async function refused(
  url: unknown,
  rule: RegExp,
  options: object = {},
  code: ErrorCode = 'INVALID_ARGUMENT',
): Promise<void> {
  await assert.rejects(openLocker(url as string, options), (error) => {
    assert.ok(isHoldfastError(error, code), `${code} expected: ${error}`)
    assert.match(error.message, rule)
    return true
  })
}

function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast open '))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  return folder
}

describe('URLs that are refused', () => {
  test.each<[unknown, RegExp]>([
    [undefined, /url must be a string such as 'sqlite:locks\.db', not undefined/],
    [null, /must be a string/],
    [42, /must be a string.*not number/],
    [new URL('memory:'), /must be a string.*not object/],
    ['', /must start with a scheme .*sqlite:locks\.db.*memory:, sqlite:/],
    ['locks.db', /must start with a scheme/],
    ['/var/lib/locks.db', /must start with a scheme/],
    ['://x', /must start with a scheme/],
    ['MEMORY:jobs?x=1', /parameter "x"/],
    [
      'mongodb://localhost',
      /has the scheme "mongodb:", which no backend answers to; there are: memory:, sqlite:/,
    ],
    ['etcd+tls://localhost', /has the scheme "etcd\+tls:"/],
    ['memroy:', /has the scheme "memroy:"/],
    ['constructor:', /has the scheme "constructor:"/],
    [`${'x'.repeat(1e5)}:`, /^.{0,400}$/],
  ])('%.40s', (url, rule) => refused(url, rule))

  test.each(['memory', 'sqlite'])(
    '%s: with a host, which would quietly be something else',
    async (scheme) => {
      for (const rest of ['//locks', '//locks.db', '//', '//?namespace=x', '//user:hunter2@host/x'])
        await refused(`${scheme}:${rest}`, new RegExp(`must not have // after ${scheme}:`))
    },
  )

  test('with a host: what was probably meant is suggested', async () => {
    await refused('sqlite://locks.db?epoch=1', /; write "sqlite:locks\.db"\.$/)
    await refused('sqlite://var/locks.db', /; write "sqlite:var\/locks\.db" or "sqlite:\/var\/locks\.db"\.$/)
    await refused('memory://jobs', /; write "memory:jobs"\.$/)
    await refused('sqlite://', /; write "sqlite:…"\.$/)
  })

  test('a path that is not well escaped', async () => {
    await refused('memory:100%', /has a % that does not start an escape; write it as %25/)
    await refused('sqlite:a%ff.db', /has a %/)
  })

  test.each<[string, RegExp]>([
    ['nameSpace=x', /parameter "nameSpace", which is unknown; there are: namespace, issuer, epoch/],
    ['ttlMs=5000', /parameter "ttlMs", which is unknown/],
    ['synchronous=full', /parameter "synchronous", which is unknown/],
    ['__proto__=x', /parameter "__proto__", which is unknown/],
    ['=', /parameter "", which is unknown/],
    ['epoch=1&epoch=2', /parameter "epoch" twice/],
    ['namespace=', /namespace must not be empty/],
    ['namespace=a//b', /namespace must not have empty segments/],
    [`namespace=${'n'.repeat(101)}`, /namespace must have at most 100 bytes/],
    ['issuer=', /issuer must not be empty/],
    ['epoch=', /epoch must be a number, not ""/],
    ['epoch=x', /epoch must be a number, not "x"/],
    ['epoch=-1', /epoch must be a number, not "-1"/],
    ['epoch=1.5', /epoch must be a number, not "1\.5"/],
    ['epoch=0x10', /epoch must be a number, not "0x10"/],
    ['epoch=1e3', /epoch must be a number, not "1e3"/],
    ['epoch=2048', /epoch must be at most 2047, not 2048/],
    ['epoch=99999999999999999999', /epoch must be at most/],
  ])('memory:?%.40s', (query, rule) => refused(`memory:?${query}`, rule))

  test('no password is ever in the message', async () => {
    for (const url of [
      'redis://user:hunter2@',
      'redis://user:hunter2@host/database',
      'postgres://user:hunter2@host/db?pasword=hunter2',
      'sqlite://user:hunter2@host/locks.db',
      'memory://user:hunter2@host',
      'Redis+X://user:hunter2@host',
      'user@hunter2',
      'redis+hunter://:hunter2@host/%zz',
      'memory:%zz-hunter2',
    ])
      await assert.rejects(openLocker(url), (error: Error) => {
        assert.ok(isHoldfastError(error, 'INVALID_ARGUMENT'))
        assert.ok(!error.message.includes('hunter2') && !error.stack?.includes('hunter2'), error.message)
        return true
      })
  })
})

describe('options', () => {
  test('those of a locker are passed on', async () => {
    const locker = await open('memory:', { holder: 'me', ttlMs: 5_000, waitMs: 0, callTimeoutMs: 100 })
    assert.equal(locker.holder, 'me')
    await using lease = await locker.acquire('n')
    assert.ok(lease.remainingMs <= 5_000 - 52)
    await assert.rejects(locker.acquire('n'), { code: 'ACQUIRE_TIMEOUT' })
  })

  test('nonsense is refused', async () => {
    await refused('memory:', /no option "requires"/, { requires: 'fenced' })
    await refused('memory:', /ttlMs must be at least 20.*10 s would be 10000/, { ttlMs: 10 })
    await refused('memory:', /holder must not be empty/, { holder: '' })
    await refused('memory:', /options must be an object, not null/, null as never)
    for (const require of ['Fenced', '', null, 7, ['fenced', 'global'], [['fenced']]])
      await refused('memory:', /require must be one of fenced, cluster/, { require })
  })

  test('G12 require: what the engine does not promise is an error at the start', async () => {
    await open('memory:', { require: 'fenced' })
    await open('memory:', { require: ['fenced'] })
    await open('memory:', { require: [] })
    const rule = /memory excludes within one process only, and require: 'cluster' was asked for/
    await refused('memory:', rule, { require: 'cluster' }, 'UNSUPPORTED')
    await refused('memory:', rule, { require: ['fenced', 'cluster'] }, 'UNSUPPORTED')
    const path = join(temporaryFolder(), 'locks.db')
    await refused(`sqlite:${path}`, /within one machine only/, { require: 'cluster' }, 'UNSUPPORTED')
  })
})

describe('engines of other packages', () => {
  const acme = () =>
    Promise.resolve({
      openFromUrl: async (url: LockerUrl) => memory(url.options<object>({})),
    })

  test('a URL with the scheme opens it', async () => {
    const locations: string[] = []
    const loaded: string[] = []
    const load = async () => {
      loaded.push('acme')
      return {
        openFromUrl: async (url: LockerUrl) => {
          locations.push(`${url.scheme} ${url.location} ${url.parameters.get('namespace')}`)
          return memory(url.options<object>({}))
        },
      }
    }
    await open('memory:', { engines: { 'acme+tls': load } })
    assert.deepEqual(loaded, [], 'it is not loaded for another scheme')
    const locker = await open('ACME+TLS://host?namespace=shop', {
      engines: { 'acme+tls': load },
      holder: 'me',
    })
    assert.deepEqual(locations, ['acme+tls //host shop'])
    await using lease = await locker.acquire('n')
    assert.equal(lease.name, 'n')
    await using backend = await openBackend('acme+tls:', { 'acme+tls': load })
    assert.equal(backend.info.name, 'memory')
  })

  test('an engine is offered to one call and not to the program', async () => {
    await open('acme:', { engines: { acme } })
    await refused('acme:', /has the scheme "acme:", which no backend answers to/)
  })

  test('G12 what is required is checked for them too', () =>
    refused('acme:', /within one process only/, { engines: { acme }, require: 'cluster' }, 'UNSUPPORTED'))

  test('an unknown scheme names them with the others', () =>
    refused('acne:', /"acne:", which no backend answers to; there are: memory:, .*, consuls:, acme:\.$/, {
      engines: { acme },
    }))

  test.each<[string, object | null, RegExp]>([
    [
      'another engine in the place of a built-in one',
      { redis: acme },
      /"redis", which is one of Holdfast's own/,
    ],
    ['a scheme in capitals', { Acme: acme }, /has the scheme "Acme"; a scheme is a lower-case letter/],
    ['a scheme with a colon', { 'acme:': acme }, /has the scheme "acme:"/],
    ['an empty scheme', { '': acme }, /has the scheme ""/],
    [
      'a module in place of its loader',
      { acme: { openFromUrl() {} } },
      /engines\.acme must be a function, not/,
    ],
    ['a list', [acme], /engines must be an object/],
    ['nothing', null, /engines must be an object/],
    [
      'a module that opens nothing',
      { acme: async () => ({}) },
      /must load for acme: a module that exports openFromUrl/,
    ],
    ['no module', { acme: async () => undefined }, /must load for acme: a module that exports openFromUrl/],
    [
      'an opening of nothing',
      { acme: async () => ({ openFromUrl: () => undefined }) },
      /must load for acme: a module whose openFromUrl\(url\) returns a backend/,
    ],
    [
      'an opening of what is no backend',
      { acme: async () => ({ openFromUrl: async () => ({}) }) },
      /must load for acme: a module whose openFromUrl\(url\) returns a backend/,
    ],
  ])('%s is refused', (_, engines, rule) => refused('acme:', rule, { engines }))

  test('a module that cannot be loaded fails with its own error', () =>
    assert.rejects(
      openLocker('acme:', { engines: { acme: () => Promise.reject(new Error('not installed')) } }),
      {
        message: 'not installed',
      },
    ))
})

test('openBackend carries a session from one client to another', async () => {
  const url = `memory:${randomUUID()}`
  await using first = await openBackend(url)
  await using second = await openBackend(url)
  const session = await first.openSession({ id: 'a'.repeat(44), ttlMs: 5_000, holder: 'ada' }, callWith())
  const handle = JSON.parse(JSON.stringify(session.handle)) as typeof session.handle
  const attached = await second.attachSession(handle, callWith())
  assert.equal((await attached?.keepAlive({ held: [], waiting: [] }, callWith()))?.kind, 'alive')
})

describe('memory:', () => {
  test('is an engine of its own each time', async () => {
    const [one, other] = [await open('memory:'), await open('memory:')]
    await using _a = await one.acquire('n')
    await using _b = await other.acquire('n', { waitMs: 0 })
    assert.equal(one.info.scope, 'process')
    assert.notEqual(one.info.issuer, other.info.issuer)
  })

  test('with a name is shared by all who say the same name', async () => {
    const [one, other] = [await open('memory:shared one'), await open('memory:shared%20one')]
    const stranger = await open('memory:another')
    await using _a = await one.acquire('n')
    assert.equal(await other.tryAcquire('n'), null, 'the name is decoded')
    await using _b = await stranger.acquire('n', { waitMs: 0 })
    assert.equal(one.info.issuer, other.info.issuer)
  })

  test('with a name outlives the lockers that are closed', async () => {
    const first = await openLocker('memory:outlives')
    const token = (await first.acquire('n').then((lease) => lease.fence))?.token ?? 0n
    await first.close()
    const second = await open('memory:outlives')
    await using lease = await second.acquire('n', { waitMs: 0 })
    assert.ok((lease.fence?.token ?? 0n) > token)
  })

  test('takes namespace, issuer and epoch', async () => {
    const { info } = await open('memory:x?namespace=tenants%2Fa&issuer=my+locks&epoch=7')
    assert.deepEqual([info.namespace, info.issuer, info.epoch], ['tenants/a', 'my locks', 7])
    const red = await open('memory:y?namespace=red')
    const blue = await open('memory:y?namespace=blue')
    await using _a = await red.acquire('n')
    await using _b = await blue.acquire('n', { waitMs: 0 })
  })
})

describe('sqlite:', () => {
  test('opens the file that the decoded path names, absolute or with three slashes', async () => {
    const path = join(temporaryFolder(), 'my locks?.db')
    const escaped = path.split('/').map(encodeURIComponent).join('/')
    const one = await open(`sqlite:${escaped}`, { require: 'fenced' })
    const other = await open(`sqlite://${escaped}`)
    assert.ok(existsSync(path))
    await using _ = await one.acquire('n')
    assert.equal(await other.tryAcquire('n'), null)
    assert.equal(one.info.scope, 'machine')
  })

  test('takes namespace, issuer, epoch and synchronous', async () => {
    const path = join(temporaryFolder(), 'locks.db')
    const { info } = await open(`sqlite:${path}?namespace=a&issuer=mine&epoch=2047&synchronous=full`)
    assert.deepEqual([info.namespace, info.issuer, info.epoch], ['a', 'mine', 2_047])
  })

  test('refuses no file, and parameters that it does not have', async () => {
    await refused('sqlite:', /must name a file: 'sqlite:locks\.db'/)
    await refused('sqlite:?namespace=x', /must name a file/)
    await refused('sqlite::memory:', /must be a file/)
    await refused('sqlite:/x/y.db?mode=ro', /parameter "mode", which is unknown; .* synchronous/)
    await refused('sqlite:/x/y.db?synchronous=off', /synchronous must be one of normal, full, not "off"/)
    await refused('sqlite:/x/y.db?epoch=2048', /epoch must be at most 2047/)
  })

  test('a folder that does not exist is a typed error that names the file', async () => {
    const path = join(temporaryFolder(), 'missing', 'locks.db')
    await assert.rejects(openLocker(`sqlite:${path}`), (error) => {
      assert.ok(isHoldfastError(error), String(error))
      assert.ok(error.message.includes('missing'), error.message)
      return true
    })
  })
})
