import { expect, test } from 'vitest'
import { clusterFromUrl } from './cluster-url.ts'
import { asFlag, LockerUrl } from './url.ts'

const readFile = async (path: string) => Buffer.from(`content of ${path}`)
const terms = { scheme: 'acme', secureScheme: 'acmes', port: 7000, readFile }
const parse = (scheme: string, rest: string, more = {}) =>
  clusterFromUrl<{ fast?: boolean }>(new LockerUrl(scheme, rest), { ...terms, ...more }, { fast: asFlag })

test('hosts, credentials, and parameters of the engine are read', async () => {
  expect(await parse('acme', '//ada:s%40crt@a,b:7001?fast=true&namespace=n')).toEqual({
    address: { hosts: ['a:7000', 'b:7001'], path: '', username: 'ada', password: 's@crt' },
    options: { fast: true, namespace: 'n' },
  })
  expect((await parse('acme', '//:token@a')).address).toMatchObject({ username: '', password: 'token' })
  expect((await parse('acme', '//a')).address).toEqual({ hosts: ['a:7000'], path: '' })
})

test('with TLS, certificates are read from files', async () => {
  const { address, options } = await parse('acmes', '//a?ca=ca.pem')
  expect(address.tls).toEqual({ ca: Buffer.from('content of ca.pem') })
  expect(options).toEqual({})
  expect((await parse('acmes', '//a')).address.tls).toEqual({})
})

test('a path is for engines that have one', async () => {
  expect((await parse('acme', '//a/base/path', { hasPath: true })).address.path).toBe('/base/path')
})

test.each([
  ['//', 'must be acme://a:7000,b:7000,c:7000, with user'],
  ['a:7000', 'must be acme://'],
  ['//a/path', 'must be acme://'],
  ['//a?ca=ca.pem', 'write acmes:// instead of acme://'],
  ['//ada:s%@a', 'write it as %25'],
])('%s is refused, and no password is shown', async (rest, message) => {
  const error = await parse('acme', rest).catch((reason: unknown) => reason)
  expect(error).toMatchObject({ code: 'INVALID_ARGUMENT', message: expect.stringContaining(message) })
  expect(String(error)).not.toContain('s%@')
})

test('a certificate that cannot be read is named, with its option', async () => {
  const cause = Object.assign(new Error('no such file'), { code: 'ENOENT' })
  const error = await parse('acmes', '//ada:s3cret@a?ca=/nope', {
    readFile: async () => Promise.reject(cause),
  }).catch((reason: unknown) => reason)
  const message = expect.stringContaining('?ca=/nope, a file that cannot be read (ENOENT)')
  expect(error).toMatchObject({ code: 'INVALID_ARGUMENT', argument: 'url', message, cause })
  expect(String(error)).not.toContain('s3cret')
})
