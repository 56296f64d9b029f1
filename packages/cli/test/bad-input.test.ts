/** Bad input for every command: the documented code, one sentence on stderr, and nothing is left. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { openLocker } from 'holdfast'
import {
  fetchJson,
  psql,
  redisCall,
  startEtcd,
  startPostgres,
  startRedis,
  waitFor,
  wanted,
} from 'holdfast-lab/servers'
import { expect, test } from 'vitest'
import { exitCodeOf } from '../src/exits.ts'
import { hidePasswordsOf, withoutPasswords } from '../src/passwords.ts'
import { newFolder, run, start } from './command.ts'

/** A whole call of each command that opens an engine. */
const calls: Readonly<Record<string, readonly string[]>> = {
  run: ['run', 'x', '--', 'true'],
  elect: ['elect', 'x', '--', 'true'],
  leader: ['leader', 'x'],
  schedule: ['schedule', 'x', '--cron', '* * * * *', '--', 'true'],
  ls: ['ls'],
  show: ['show', 'x'],
  watch: ['watch'],
  release: ['release', 'x', '--id', 'i', '--reason', 'r', '--yes'],
  doctor: ['doctor'],
}
const own = () => ({ HOLDFAST_URL: `sqlite:${join(newFolder(), 'locks.db')}` })
const oneSentence = /^holdfast: [^\n]+\n$/
const withStack = /^holdfast: [^\n]+\n\w*Error[^\n]*\n( {4}at [^\n]+\n)+/
const withFlags = ([command = '', ...rest]: readonly string[], ...flags: readonly string[]) =>
  run([command, ...flags, ...rest], { env: own() })

test.each(Object.entries(calls))('%s: no such scheme, no such engine, no such flag', async (_, call) => {
  const [unreachable, ...others] = await Promise.all([
    withFlags(call, '--verbose', '--url', 'redis://user:hunter2@127.0.0.1:1'),
    withFlags(call, '--url', 'nonsense://user:hunter2@host/'),
    withFlags(call, '--require', 'everything'),
    withFlags(call, '--nonsense'),
    withFlags(call, '--url', 'memory:'),
  ])
  expect([unreachable, ...others].map(({ code }) => code)).toEqual([69, 64, 64, 64, 64])
  expect(unreachable.stderr).toMatch(withStack)
  for (const { stderr } of others) expect(stderr).toMatch(oneSentence)
  for (const { stdout, stderr } of [unreachable, ...others]) expect(stdout + stderr).not.toContain('hunter2')
})

test.runIf(wanted('redis'))('no command gets in with a wrong password, and none shows one', async () => {
  await using server = await startRedis()
  // What a command says anyway, to see that it is taken out everywhere.
  await redisCall({ host: '127.0.0.1', port: server.port }, 'CONFIG', 'SET', 'requirepass', 'ended with')
  const at = (password: string) => ['--verbose', '--url', `redis://:${password}@127.0.0.1:${server.port}`]
  const flags = ['--allow-unfenced', '--cron', '* * * * * *', ...at('ended%20with')]
  const failing = start(['schedule', 'x', ...flags, '--', 'sh', '-c', 'exit 3'])
  let told = ''
  failing.process.stderr?.on('data', (text: string) => (told += text))
  await waitFor('the failure', async () => told.includes('\n') || null)
  expect(told).toMatch(/^holdfast: the command of tick \S+ … 3\n/)
  failing.kill('SIGTERM')
  const ends = await Promise.all(Object.values(calls).map((call) => withFlags(call, ...at('wr%6Fng-one'))))
  for (const { code, stdout, stderr } of ends) {
    expect([code, stdout, stderr]).toEqual([69, '', expect.stringMatching(withStack)])
    expect(stderr).not.toMatch(/wrong-one|wr%6Fng-one/)
  }
})

const refusesPassword = async (url: string) => {
  for (const call of [calls.run ?? [], calls.doctor ?? []]) {
    const { code, stdout, stderr } = await withFlags(call, '--url', url)
    expect([code, stdout, stderr]).toEqual([69, '', expect.stringMatching(oneSentence)])
    expect(stderr).toMatch(/password/)
    expect(stderr).not.toContain('hunter2')
  }
}

test.runIf(wanted('postgres'))('a wrong password is 69 with PostgreSQL', async () => {
  await using server = await startPostgres()
  const address = { host: '127.0.0.1', port: server.port }
  await psql(address, "CREATE ROLE careful LOGIN PASSWORD 'right'")
  const rules = await psql(address, 'SHOW hba_file')
  writeFileSync(rules, `host all careful all scram-sha-256\n${readFileSync(rules, 'utf8')}`)
  await psql(address, 'SELECT pg_reload_conf()')
  await refusesPassword(server.url.replace('postgres@', 'careful:hunter2@'))
})

test.runIf(wanted('etcd'))('a wrong password is 69 with etcd', async () => {
  await using cluster = await startEtcd()
  const [member] = cluster.members
  const operate = (path: string, body: object) =>
    fetchJson(`${member?.url}/v3/auth/${path}`, { method: 'POST', body: JSON.stringify(body) }, 10_000)
  await operate('user/add', { name: 'root', password: 'right' })
  await operate('user/grant', { user: 'root', role: 'root' })
  await operate('enable', {})
  await refusesPassword(`etcd://root:hunter2@127.0.0.1:${member?.port}`)
})

test('a key whose secret is short is refused', async () => {
  const file = join(newFolder(), 'key')
  writeFileSync(file, `k1 ${Buffer.alloc(31).toString('base64')}\n`)
  const { code, stderr } = await withFlags(calls.run ?? [], '--sign-key-file', file)
  expect([code, stderr]).toEqual([
    64,
    expect.stringMatching(/^holdfast: --sign-key-file must .*32 bytes[^\n]*\n$/),
  ])
})

test('a queue that is full is busy', () => {
  expect([exitCodeOf({ code: 'QUEUE_FULL' }), exitCodeOf({ code: 'QUEUE_FULL' }, 9)]).toEqual([75, 9])
})

test('other engines that are not there, or do not know us, are 69 as well', async () => {
  const urls = ['postgres://u:hunter2@127.0.0.1:1/x', 'etcd://u:hunter2@127.0.0.1:1', 'consul://127.0.0.1:1']
  const ends = await Promise.all(urls.map((url) => withFlags(calls.run ?? [], '--url', url)))
  for (const { code, stdout, stderr } of ends) {
    expect([code, stdout, stderr]).toEqual([69, '', expect.stringMatching(oneSentence)])
    expect(stderr).not.toContain('hunter2')
  }
})

const name = 'a\u001b[2Jb'
test.each<readonly [readonly string[], number]>([
  [['run', 'x', '--wait', '30', '--', 'true'], 64],
  [['run', 'x', '--ttl', '-1s', '--', 'true'], 64],
  [['run', 'x', '--ttl', '1ms', '--', 'true'], 64],
  [['run', 'x', '--ttl', '3s', '--stop-in', '1001ms', '--', 'true'], 64],
  [['run', 'x', '--stop-in', '0', '--', 'true'], 64],
  [['elect', 'x', '--ttl', '30', '--', 'true'], 64],
  [['schedule', 'x', '--cron', '* * * * *', '--stop-in', 'soon', '--', 'true'], 64],
  [['schedule', 'x', '--cron', '* * * * *', '--note', 'n', '--', 'true'], 64],
  [['advise', '--for', 'job', '--pause', '5'], 64],
  [['advise', '--for', 'job', '--engine', 'nonsense'], 64],
  [['fence-proxy', 'http://127.0.0.1:9', '--marks', 'm', '--name', 'n', '--unsigned', '--limit', '5'], 64],
  [['run', 'x', '--max-hold', '3s', '--stop-in', '1001ms', '--', 'true'], 64],
  [['run', 'x', '--'], 64],
  [['run', 'x', 'true'], 64],
  [['run', 'x', 'env', '--wait', '0'], 64],
  [['run', 'x', 'env', '--wait', '0', '--', 'true'], 64],
  [['elect', 'x', 'true'], 64],
  [['schedule', 'x', '--cron', '* * * * *', 'true'], 64],
  [['run'], 64],
  [['elect', 'x'], 64],
  [['schedule', 'x', '--cron', '* * * * *'], 64],
  [['fence-proxy'], 64],
  [['run', 'x', '--shared', '--capacity', '2', '--', 'true'], 64],
  [['run', 'x', '--weight', '2', '--', 'true'], 64],
  [['run', 'x', '--capacity', '0', '--', 'true'], 64],
  [['run', 'x', '--capacity', '2', '--weight', '3', '--', 'true'], 64],
  [['run', 'x', '-E', '256', '--', 'true'], 64],
  [['run', 'x', '--sign-key-file', '/no/such/file', '--', 'true'], 64],
  [['run', 'x', '--sign-key-file', '/etc/hostname', '--', 'true'], 64],
  [['run', name, '--', 'true'], 64],
  [['elect', name, '--', 'true'], 64],
  [['schedule', name, '--cron', '* * * * *', '--', 'true'], 64],
  [['release', name, '--id', 'i', '--reason', 'r', '--yes'], 64],
  [['schedule', 'x', '--', 'true'], 64],
  [['schedule', 'x', '--cron', 'nonsense', '--', 'true'], 64],
  [['schedule', 'x', '--cron', '* * * * *', '--policy', 'never', '--', 'true'], 64],
  [['schedule', 'x', '--cron', '* * * * *', '--tz', 'Mars/Base', '--', 'true'], 64],
  [['leader', name], 64],
  [['show', name], 64],
  [['ls', name], 64],
  [['watch', name], 64],
  [['release', 'x', '--reason', 'r', '--yes'], 64],
  [['release', 'x', '--id', 'i', '--token', '1', '--reason', 'r', '--yes'], 64],
  [['release', 'x', '--token', 'one', '--reason', 'r', '--yes'], 64],
  [['release', 'x', '--id', 'i', '--yes'], 64],
  [['release', 'x', '--id', 'i', '--reason', 'r'], 64],
  [['release', 'x', '--id', 'i', '--reason', 'r', '--yes'], 1],
  [['server'], 64],
  [['nonsense'], 64],
])('%#: %j ends with %i', async (args, expected) => {
  const env = own()
  const { code, stdout, stderr } = await run(args, { env })
  expect([code, stdout, stderr]).toEqual([expected, '', expect.stringMatching(oneSentence)])
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they must not be there
  expect(stderr).not.toMatch(/\u001b/)
  await using locker = await openLocker(env.HOLDFAST_URL)
  expect(await locker.list()).toEqual([])
})

test('a home that cannot be written is 69, and says what to give instead', async () => {
  const { code, stderr } = await run(['ls'], { env: { XDG_STATE_HOME: '/dev/null/state' } })
  expect([code, stderr]).toEqual([
    69,
    expect.stringMatching(/^holdfast: no --url and no HOLDFAST_URL, and E[^\n]+\n$/),
  ])
})

test('passwords of a URL are not shown, whatever quotes them', () => {
  const shown = (url: string, text: string) => {
    hidePasswordsOf(url)
    return withoutPasswords(text)
  }
  expect(shown('redis://u:p%40s@h:1', 'p@s and p%40s')).toBe('… and …')
  expect(shown('redlock://:one@a,u:two@b/?x=:three@', 'one two three')).toBe('… … three')
  expect(shown('postgres://u:a:b@c@h/db', 'a:b@c')).toBe('…')
  expect(shown('etcd://a,b', 'a, b')).toBe('a, b')
})

test('a help is no error', async () => {
  const help = await run(['run', '--help'])
  expect([help.code, help.stderr]).toEqual([0, ''])
  expect((await run(['--help'])).stdout).toContain('Exit codes:')
  expect((await run([])).code).toBe(64)
})
