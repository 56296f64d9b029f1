/** `doctor` on real engines, and its checks of this machine. */
import { join } from 'node:path'
import { createClock } from 'holdfast-lab/faults'
import { redisCall, startPostgres, startRedis, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { node, openFiles, pauses } from '../src/machine.ts'
import { holdfast, newFolder, onTerminal, run } from './command.ts'

const findings = (stdout: string): { code: string; severity: string }[] =>
  stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line))
// A busy machine is what it says.
const ofEngine = (stdout: string) =>
  findings(stdout).filter(({ code }) => !/DOCTOR_(PAUSES|ROUND_TRIP)$/.test(code))

describe('engines', () => {
  test('a file of this machine is well; on a terminal the round trip is told', async () => {
    const url = `sqlite:${join(newFolder(), 'locks.db')}?synchronous=full`
    const { stdout } = await run(['doctor', url])
    expect(ofEngine(stdout)).toEqual([])
    const shown = await run([], { through: onTerminal(`exec ${holdfast} doctor ${url}`) })
    expect(shown.stdout).toMatch(/sqlite: a read takes [\d.]+ ms, and [\d.]+ ms at worst, of 20\./)
  })

  test.runIf(wanted('redis'))('redis: a danger is 2, a warning is 1, a note is 0', async () => {
    await using server = await startRedis({ settings: { 'maxmemory-policy': 'allkeys-lru' } })
    const evicting = await run(['doctor', server.url])
    expect(evicting.code).toBe(2)
    const [first] = findings(evicting.stdout)
    for (const query of ['', '?fencing=clock-backed']) {
      await redisCall(server, 'CONFIG', 'SET', 'maxmemory-policy', 'noeviction')
      const { code, stdout } = await run(['doctor', `${server.url}${query}`])
      // A busy machine adds warnings.
      const worst = findings(stdout).some(({ severity }) => severity === 'warning') ? 1 : 0
      expect([code, stdout.includes('PERSISTENCE')]).toEqual([worst, true])
      if (query !== '') expect(code).toBe(1)
    }
    await redisCall(server, 'CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
    expect(first).toMatchObject({
      code: 'HOLDFAST_REDIS_EVICTION',
      severity: 'danger',
      fix: expect.any(String),
    })
    const shown = await run([], {
      env: { NO_COLOR: '1' },
      through: onTerminal(`exec ${holdfast} doctor ${server.url}`),
    })
    expect(shown.stdout).toMatch(/^DANGER {2}HOLDFAST_REDIS_EVICTION\r?\n {2}\S/)
  })

  test.runIf(wanted('redis'))('redis: a clock that is apart from ours', async () => {
    const clock = createClock()
    await using server = await startRedis({ clock, settings: { appendonly: 'yes' } })
    const apart = async () => ofEngine((await run(['doctor', server.url])).stdout).map(({ code }) => code)
    expect(await apart()).toEqual([])
    clock.step(-5_000)
    expect(await apart()).toEqual(['HOLDFAST_DOCTOR_CLOCKS'])
  })

  test.runIf(wanted('postgres'))('postgres', async () => {
    await using server = await startPostgres()
    const { code, stdout } = await run(['doctor', server.url])
    expect(code).toBe(2)
    expect(ofEngine(stdout).map(({ code }) => code)).toContain('HOLDFAST_POSTGRES_FSYNC')
  })

  test('an engine that is not there is 69, whose password is not shown', async () => {
    const { code, stdout, stderr } = await run(['doctor', 'redis://u:hunter2@127.0.0.1:1'])
    expect([code, stdout]).toEqual([69, ''])
    expect(stderr).not.toContain('hunter2')
  })
})

describe('this machine', () => {
  const codes = (found: readonly { readonly code: string }[]) => found.map(({ code }) => code)

  test('a pause is held against the TTL', () => {
    expect(codes(pauses(500, 15_000))).toEqual([])
    expect(codes(pauses(501, 15_000))).toEqual(['HOLDFAST_DOCTOR_PAUSES'])
  })

  test('the limit of open files is the hard one, which Node takes by itself', () => {
    const limits = (soft: number, hard: string) =>
      `Max open files            ${soft}                 ${hard}              files\n`
    expect(codes(openFiles(limits(1_024, '1048576')))).toEqual([])
    expect(codes(openFiles(limits(256, '512')))).toEqual(['HOLDFAST_DOCTOR_OPEN_FILES'])
    expect(codes(openFiles(limits(256, 'unlimited')))).toEqual([])
    expect(openFiles('')).toEqual([])
  })

  test('releases of Node without long-term support', () => {
    expect(codes([...node('24.1.0'), ...node('25.0.0')])).toEqual(['HOLDFAST_DOCTOR_NODE'])
  })
})
