/** `doctor` on real engines, and its checks of this machine. */
import { join } from 'node:path'
import { openLocker } from 'holdfast'
import { type Clock, createClock, startProxy } from 'holdfast-lab/faults'
import {
  redisCall,
  startConsul,
  startEtcd,
  startPostgres,
  startRedis,
  startRedisNodes,
  startRedisPair,
  startZooKeeper,
  waitFor,
  wanted,
} from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { roundTrip } from '../src/doctor.ts'
import { node, openFiles, pauses } from '../src/machine.ts'
import { holdfast, newFolder, onTerminal, run, start } from './command.ts'

const findings = (stdout: string): { code: string; severity: string }[] =>
  stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line))
// A busy machine is what it says.
const ofEngine = (stdout: string) =>
  findings(stdout).filter(({ code }) => !/DOCTOR_(PAUSES|ROUND_TRIP)$/.test(code))

// Each of them watches its event loop for a second, so those that can run together do.
describe('engines', () => {
  test('a file of this machine is well; the round trip is told, in a pipe and on a terminal', async () => {
    const url = `sqlite:${join(newFolder(), 'locks.db')}?synchronous=full`
    const [{ stdout }, shown] = await Promise.all([
      run(['doctor', url]),
      run([], { through: onTerminal(`exec ${holdfast} doctor ${url}`) }),
    ])
    expect(ofEngine(stdout)).toEqual([])
    for (const text of [stdout, shown.stdout])
      expect(text).toMatch(/A read of sqlite takes [\d.]+ ms, and [\d.]+ ms at worst, of 20\./)
  })

  test.runIf(wanted('redis'))('redis: a danger is 2, a warning is 1, a note is 0', async () => {
    await using server = await startRedis({ settings: { 'maxmemory-policy': 'allkeys-lru' } })
    const through = onTerminal(`exec ${holdfast} doctor ${server.url}`)
    const unread = start(['doctor', server.url])
    unread.process.stdout?.destroy()
    const [evicting, shown, { code }] = await Promise.all([
      run(['doctor', server.url]),
      run([], { env: { NO_COLOR: '1' }, through }),
      unread.ended,
    ])
    expect([evicting.code, code]).toEqual([2, 2])
    expect(findings(evicting.stdout)[0]).toMatchObject({
      code: 'HOLDFAST_REDIS_EVICTION',
      severity: 'danger',
      fix: expect.any(String),
    })
    expect(shown.stdout).toMatch(/^DANGER {2}HOLDFAST_REDIS_EVICTION\r?\n {2}\S/)
    await redisCall(server, 'CONFIG', 'SET', 'maxmemory-policy', 'noeviction')
    const judged = async (query: string) => {
      const { code, stdout } = await run(['doctor', `${server.url}${query}`])
      // A busy machine adds warnings.
      const worst = findings(stdout).some(({ severity }) => severity === 'warning') ? 1 : 0
      expect([code, stdout.includes('PERSISTENCE')]).toEqual([worst, true])
      return code
    }
    const [, fenced] = await Promise.all([judged(''), judged('?fencing=clock-backed')])
    expect(fenced).toBe(1)
  })

  test.runIf(wanted('redis'))('redis: what it lacks is found although it grants nothing', async () => {
    await using pair = await startRedisPair()
    // A word of the failure, to see that it is taken out.
    const rights = ['on', '>permissions', '~*', '&*', '+@all', '-@scripting', '-config']
    await redisCall(pair.primary, 'ACL', 'SETUSER', 'reader', ...rights)
    const urls = [pair.replica.url, pair.primary.url.replace('//', '//reader:permissions@')]
    const [replica, denied] = await Promise.all(urls.map((url) => run(['doctor', url])))
    expect([replica?.code, denied?.code]).toEqual([2, 2])
    const refused = (what: RegExp) =>
      expect.objectContaining({ code: 'HOLDFAST_DOCTOR_ENGINE', what: expect.stringMatching(what) })
    expect(findings(replica?.stdout ?? '')).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ code: 'HOLDFAST_REDIS_REPLICA' }),
        refused(/replica/i),
      ]),
    )
    expect(findings(denied?.stdout ?? '')).toContainEqual(refused(/no … .*eval/i))
  })

  test.runIf(wanted('redis'))(
    'redis: a signal ends it, and the lease that shows the clock is released',
    async () => {
      await using server = await startRedis()
      await using proxy = await startProxy({ host: '127.0.0.1', port: server.port })
      await using client = await openLocker(server.url)
      proxy.delay(30)
      const examining = start(['doctor', `redis://127.0.0.1:${proxy.port}`])
      const held = () => client.list('holdfast-doctor/')
      await waitFor('its lease', async () => (await held()).length === 1 || null)
      examining.kill('SIGINT')
      expect(await examining.ended).toEqual({ code: 130, stdout: '', stderr: '' })
      expect(await held()).toEqual([])
    },
  )

  test.each([
    ['redis', (clock: Clock) => startRedis({ clock, settings: { appendonly: 'yes' } })],
    ['postgres', (clock: Clock) => startPostgres({ clock, fsync: true })],
  ] as const)('%s: a clock that is apart from ours', async (engine, begin) => {
    if (!wanted(engine)) return
    const clock = createClock()
    await using server = await begin(clock)
    const apart = async () => ofEngine((await run(['doctor', server.url])).stdout).map(({ code }) => code)
    expect(await apart()).toEqual([])
    clock.step(-5_000)
    expect(await apart()).toEqual(['HOLDFAST_DOCTOR_CLOCKS'])
  })

  test('all others: what the library says of each, a round trip, and whether a lease is granted', async () => {
    const others = [
      ['postgres', startPostgres, '', 'POSTGRES_FSYNC'],
      ['etcd', startEtcd, '', 'ETCD_FEW_MEMBERS'],
      ['zookeeper', startZooKeeper, '?acl=open', 'ZOOKEEPER_OPEN_ACL'],
      ['consul', startConsul, '', 'CONSUL_ACL_OFF'],
      // Redlock: they have just started, so they have no vote yet.
      ['redis', () => startRedisNodes(3), '', 'REDLOCK_NO_VOTE', 'DOCTOR_ENGINE'],
    ] as const
    const examined = others.map(async ([engine, begin, query, ...codes]) => {
      if (!wanted(engine)) return
      await using server = await begin()
      const { stdout, stderr } = await run(['doctor', `${server.url}${query}`])
      expect(stderr).toBe('')
      const told = new Set(findings(stdout).map(({ code }) => code.slice('HOLDFAST_'.length)))
      expect(told).toEqual(new Set([...told, ...codes, 'DOCTOR_ROUND_TRIP']))
      expect(told.has('DOCTOR_ENGINE')).toBe(engine === 'redis')
    })
    await Promise.all(examined)
  })

  test('an engine that is not there is 69, whose password is not shown', async () => {
    const { code, stdout, stderr } = await run(['doctor', 'redis://u:hunter2@127.0.0.1:1'])
    expect([code, stdout]).toEqual([69, ''])
    expect(stderr).not.toContain('hunter2')
  })
})

test('a round trip is held against the TTL: most of them, and the worst', () => {
  const severity = (...timesMs: readonly number[]) => roundTrip('redis', timesMs).severity
  expect(severity(1, 1, 1_250)).toBe('note')
  expect(severity(1, 1, 1_251)).toBe('warning')
  expect(severity(1, 1_251, 1_251)).toBe('danger')
  expect(roundTrip('redis', [3_000]).fix).toContain('36 s')
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
