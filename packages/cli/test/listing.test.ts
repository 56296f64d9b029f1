/** `ls`, `show`, `watch` and `release`, in pipes and on a terminal. */
import { type AnyLocker, openLocker } from 'holdfast'
import { startRedis, waitFor, wanted } from 'holdfast-lab/servers'
import { beforeEach, describe, expect, test } from 'vitest'
import { holdfast, newRig, onTerminal, run, start } from './command.ts'

let env: Record<string, string>
let locker: AnyLocker
beforeEach(async () => {
  const rig = newRig()
  ;({ env } = rig)
  locker = await rig.locker(env.HOLDFAST_URL, { holder: 'api-1' })
})
const parsed = (text: string) =>
  text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
const drawn = async (command: string, further: Record<string, string> = {}) =>
  (
    await run([], {
      env: { ...env, TERM: 'xterm', ...further },
      through: onTerminal(`exec ${holdfast} ${command}`),
    })
  ).stdout

describe('listing', () => {
  test('in a pipe there is one JSON object on each line, by prefix', async () => {
    const lease = await locker.acquire('a/1', { note: 'nightly' })
    await locker.acquire('a/2')
    await locker.acquire('b')
    const { code, stdout } = await run(['ls', 'a/'], { env })
    expect(code).toBe(0)
    const states = parsed(stdout)
    expect(states.map(({ name }) => name)).toEqual(['a/1', 'a/2'])
    expect(states[0].holders[0]).toMatchObject({ id: lease.id, holder: 'api-1', note: 'nightly', token: '1' })
    expect(parsed((await run(['show', 'a/1'], { env })).stdout)).toEqual([
      {
        ...states[0],
        explanation: expect.stringMatching(/^Held by "api-1" .* renewing\.$/),
        atMs: expect.anything(),
        holders: expect.anything(),
      },
    ])
    const free = await run(['show', 'free', '--json'], { env })
    expect(parsed(free.stdout)).toEqual([{ name: 'free', explanation: expect.stringMatching(/^Free/) }])
  })

  test('on a terminal it is a table; without colours where they are not wanted', async () => {
    await locker.acquire('a', { note: 'nightly' })
    const waiting = start(['run', 'a', '--', 'true'], { env })
    await waitFor('it waits', async () => (await locker.inspect('a'))?.waiters.length === 1 || null)
    const shown = await drawn('ls')
    expect(shown).toMatch(/NAME +HOLDER +HELD +LEFT +TOKEN +WAIT +NOTE/)
    expect(shown).toMatch(/\na +api-1 +\d+ m?s +\d+ s +1 +1 +nightly\r?\n/)
    expect(shown).toContain('\u001b[1m')
    expect(await drawn('ls', { NO_COLOR: '1' })).not.toContain('\u001b')
    const detailed = await drawn('show a')
    expect(detailed).toMatch(/^Held by "api-1".*1 wait/)
    expect(detailed).toMatch(/WAITER[\s\S]*holdfast: true/)
    waiting.kill('SIGTERM')
    expect(await drawn('ls none/')).toMatch(/^No name is in use\.\r?\n$/)
  })

  test('what others have stored cannot steer the terminal', async () => {
    const lease = await locker.acquire('a', { note: 'x\u202ey' })
    const data = '\u009b2J\u202edata'
    await lease.setData(data)
    const json = await drawn('show a --json')
    expect(json).not.toMatch(/[\u0080-\u009f\u202e]/)
    expect(JSON.parse(json)).toMatchObject({ data })
    await lease.setData('\u001b[2J\u202edata')
    const shown = await drawn('show a', { NO_COLOR: '1' })
    expect(shown).toContain('\\u001b[2J\\u202edata')
    expect(shown).not.toContain('\u001b')
    for (const command of ['ls', 'show a', `release a --id ${lease.id} --reason r --yes`]) {
      const text = await drawn(command)
      expect(text).toContain('x\\u202ey')
      expect(text).not.toContain('\u202e')
    }
  })

  test('watch prints events as they come, and draws the table again on a terminal', async () => {
    const following = start(['watch', 'a/'], { env })
    let lines = ''
    following.process.stdout?.on('data', (text: string) => (lines += text))
    await waitFor('events', async () => {
      await (await locker.acquire('a/1')).release()
      await (await locker.acquire('b')).release()
      return lines.split('\n').length > 4 || null
    })
    following.kill('SIGTERM')
    const kinds = parsed(lines.slice(0, lines.lastIndexOf('\n'))).map(({ kind, name }) => `${kind} ${name}`)
    expect([...new Set(kinds)].toSorted()).toEqual(['acquired a/1', 'released a/1'])

    const drawing = start([], { env, through: onTerminal(`exec ${holdfast} watch a/`) })
    let pictures = ''
    drawing.process.stdout?.on('data', (text: string) => (pictures += text))
    await waitFor('the first picture', async () => pictures.includes('No name is in use.') || null)
    await locker.acquire('a/2')
    await waitFor('the next picture', async () => /a\/2 +api-1/.test(pictures) || null)
    drawing.kill('SIGKILL')
  })
})

test.runIf(wanted('redis'))(
  'in a pipe each name comes once, and in order, also from an engine without an order',
  async () => {
    await using server = await startRedis()
    await using client = await openLocker(server.url)
    // More than a page.
    const names = Array.from({ length: 1_100 }, (_, index) => `n/${10_000 + index}`)
    await Promise.all(names.map((name) => client.acquire(name)))
    const { stdout } = await run(['ls', 'n/', '--url', server.url])
    expect(parsed(stdout).map(({ name }) => name)).toEqual(names)
  },
)

test.runIf(wanted('redis'))(
  'when its reader has gone, a list ends with 0, and what an operator has asked for is done all the same',
  async () => {
    await using server = await startRedis()
    await using client = await openLocker(server.url)
    const lease = await client.acquire('a')
    const unread = async (...args: readonly string[]) => {
      const started = start([...args, '--url', server.url])
      started.process.stdout?.destroy()
      return (await started.ended).code
    }
    expect(await Promise.all([unread('ls'), unread('show', 'a'), unread('leader', 'b')])).toEqual([0, 0, 1])
    // It notices at the next event.
    let isOver = false
    const watching = unread('watch').finally(() => {
      isOver = true
    })
    await waitFor('its end', async () => {
      await (await client.acquire('b')).release()
      return isOver || null
    })
    expect(await watching).toBe(0)
    expect(await unread('release', 'a', '--id', lease.id, '--reason', 'r', '--yes')).toBe(0)
    expect(await client.inspect('a')).toBeNull()
  },
)

describe('releasing', () => {
  test('ends the holder with the token, says whom, and tells the reason', async () => {
    const lease = await locker.acquire('a')
    const token = String(lease.fence?.token)
    const flags = ['--token', token, '--reason', 'host is gone', '--yes']
    const { code, stdout } = await run(['release', 'a', ...flags], { env })
    expect(code).toBe(0)
    expect(stdout).toMatch(
      /^This ends api-1, which has held a for .*until a successor has been there\.\nReleased\.\n$/,
    )
    await lease.renew().catch(() => {})
    expect(lease.signal.reason).toMatchObject({ reason: 'force-released', detail: 'host is gone' })
    expect((await run(['release', 'a', ...flags], { env })).code).toBe(1)
  })

  test('an id names one of the readers', async () => {
    const kept = await locker.acquire('a', { mode: 'shared' })
    const ended = await locker.acquire('a', { mode: 'shared' })
    expect((await run(['release', 'a', '--id', ended.id, '--reason', 'r', '--yes'], { env })).code).toBe(0)
    expect((await locker.inspect('a'))?.holders.map(({ id }) => id)).toEqual([kept.id])
  })

  test('on a terminal it asks, and only yes is one', async () => {
    let lease = await locker.acquire('a')
    const answered = async (answer: string, meanwhile?: () => Promise<unknown>) => {
      const through = onTerminal(`exec ${holdfast} release a --id ${lease.id} --reason r`)
      const asked = start([], { env, through, input: true })
      let shown = ''
      asked.process.stdout?.on('data', (text: string) => (shown += text))
      await waitFor('the question', async () => shown.includes('End it? [y/N]') || null)
      await meanwhile?.()
      asked.process.stdin?.write(`${answer}\n`)
      return (await asked.ended).code
    }
    expect(await answered('')).toBe(1)
    expect(await answered('\u0004')).toBe(1)
    expect((await locker.inspect('a'))?.holders).toHaveLength(1)
    expect(await answered('yes')).toBe(0)
    expect(await locker.inspect('a')).toBeNull()
    lease = await locker.acquire('a')
    expect(await answered('yes', () => lease.release())).toBe(1)
  })
})
