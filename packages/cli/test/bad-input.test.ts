/** Bad input for every command: the documented code, one sentence on stderr, and nothing is left. */
import { join } from 'node:path'
import { openLocker } from 'holdfast'
import { expect, test } from 'vitest'
import { hidePasswordsOf, withoutPasswords } from '../src/passwords.ts'
import { newFolder, run } from './command.ts'

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
}
const own = () => ({ HOLDFAST_URL: `sqlite:${join(newFolder(), 'locks.db')}` })
const oneSentence = /^holdfast: [^\n]+\n$/

test.each(Object.entries(calls))('%s: no such scheme, no such engine, no such flag', async (_, call) => {
  const [command = '', ...rest] = call
  const withFlags = (...flags: string[]) => run([command, ...flags, ...rest], { env: own() })
  const ends = await Promise.all([
    withFlags('--url', 'nonsense://user:hunter2@host/'),
    withFlags('--url', 'redis://user:hunter2@127.0.0.1:1'),
    withFlags('--require', 'everything'),
    withFlags('--nonsense'),
  ])
  expect(ends.map(({ code }) => code)).toEqual([64, 69, 64, 64])
  for (const { stdout, stderr } of ends) {
    expect(stderr).toMatch(oneSentence)
    expect(stdout + stderr).not.toContain('hunter2')
  }
})

const name = 'a\u001b[2Jb'
test.each<readonly [readonly string[], number]>([
  [['run', 'x', '--wait', '30', '--', 'true'], 64],
  [['run', 'x', '--ttl', '-1s', '--', 'true'], 64],
  [['run', 'x', '--ttl', '1ms', '--', 'true'], 64],
  [['run', 'x', '--ttl', '3s', '--stop-in', '1001ms', '--', 'true'], 64],
  [['run', 'x', '--stop-in', '0', '--', 'true'], 64],
  [['run', 'x', '--'], 64],
  [['run'], 64],
  [['run', 'x', '--shared', '--capacity', '2', '--', 'true'], 64],
  [['run', 'x', '--weight', '2', '--', 'true'], 64],
  [['run', 'x', '--capacity', '0', '--', 'true'], 64],
  [['run', 'x', '--capacity', '2', '--weight', '3', '--', 'true'], 64],
  [['run', 'x', '-E', '256', '--', 'true'], 64],
  [['run', 'x', '--sign-key-file', '/no/such/file', '--', 'true'], 64],
  [['run', 'x', '--sign-key-file', '/etc/hostname', '--', 'true'], 64],
  [['run', name, '--', 'true'], 64],
  [['elect', name, '--', 'true'], 64],
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

test('--verbose shows the stack, and a help is no error', async () => {
  const refused = await run(['show', 'x', '--verbose', '--url', 'redis://u:hunter2@127.0.0.1:1'])
  expect(refused.stderr).toMatch(/^holdfast: [^\n]+\n\w*Error.*\n {4}at /)
  expect(refused.stderr).not.toContain('hunter2')
  const help = await run(['run', '--help'])
  expect([help.code, help.stderr]).toEqual([0, ''])
  expect((await run(['--help'])).stdout).toContain('Exit codes:')
  expect((await run([])).code).toBe(64)
})
