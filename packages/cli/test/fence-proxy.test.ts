import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { waitFor } from 'holdfast-lab/servers'
import { expect, onTestFinished, test } from 'vitest'
import { nameFor } from '../src/fence-proxy.ts'
import { newFolder, run, start } from './command.ts'

test('G5 a fence of `run` passes the proxy, and an older one does not any more', async () => {
  const seen: string[] = []
  const service = createServer((request, response) => {
    seen.push(`${request.method} ${request.url}`)
    response.end('done')
  })
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void service.close())
  const folder = newFolder()
  const key = join(folder, 'key')
  writeFileSync(key, `k1 ${Buffer.alloc(32, 7).toString('base64')}`)
  const target = `http://127.0.0.1:${(service.address() as AddressInfo).port}`
  const flags = [
    '--marks',
    join(folder, 'fences.db'),
    '--name',
    'sku:{2}',
    '--key-file',
    key,
    '--listen',
    '127.0.0.1:0',
  ]
  const proxy = start(['fence-proxy', target, ...flags])
  let told = ''
  proxy.process.stderr?.on('data', (text: string) => (told += text))
  const url = await waitFor('the proxy', async () => /http:\S+/.exec(told)?.[0] ?? null)

  const env = { HOLDFAST_URL: `sqlite:${join(folder, 'locks.db')}` }
  const fenceOf = async () => {
    const command = ['--sign-key-file', key, '--', 'sh', '-c', 'printf %s "$HOLDFAST_FENCE"']
    return (await run(['run', 'sku:42', ...command], { env })).stdout
  }
  const [older, newer] = [await fenceOf(), await fenceOf()]
  const put = async (fence: string) =>
    (await fetch(`${url}/stock/42`, { method: 'PUT', headers: { 'Holdfast-Fence': fence } })).status
  expect([await put(older), await put(newer), await put(older), await put('forged')]).toEqual([
    200, 200, 409, 400,
  ])
  expect(seen).toEqual(['PUT /stock/42', 'PUT /stock/42'])
  proxy.kill('SIGTERM')
  expect((await proxy.ended).code).toBe(0)
})

test('a signal that comes while it starts is not missed', async () => {
  const folder = newFolder()
  const hook = join(folder, 'hook.mjs')
  writeFileSync(
    hook,
    `import dns from 'node:dns'
    const { lookup } = dns
    dns.lookup = (...given) => { process.kill(process.pid, 'SIGTERM'); setTimeout(() => lookup(...given), 100) }`,
  )
  const flags = ['--marks', join(folder, 'fences.db'), '--name', 'x', '--unsigned', '--listen', 'localhost:0']
  const { code } = await run(['fence-proxy', 'http://127.0.0.1:9', ...flags], {
    env: { NODE_OPTIONS: `--import=${hook}` },
  })
  expect(code).toBe(0)
})

test('bad flags, and a path without the segment', async () => {
  const marks = ['--marks', join(newFolder(), 'fences.db'), '--name', 'x']
  const ends = await Promise.all([
    run(['fence-proxy', 'http://127.0.0.1:9', ...marks]),
    run(['fence-proxy', 'nonsense', ...marks, '--unsigned', '--listen', '127.0.0.1:0']),
    run(['fence-proxy', 'http://127.0.0.1:9', ...marks, '--unsigned', '--listen', 'everywhere']),
  ])
  expect(ends.map(({ code }) => code)).toEqual([64, 64, 64])
  expect(nameFor('sku:{2}', '/stock/4%202?x=1')).toBe('sku:4 2')
  for (const url of ['/stock', '/stock/42;a', '/stock/42%3ba'])
    expect(() => nameFor('sku:{2}', url)).toThrow()
})
