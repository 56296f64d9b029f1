/** Refusals and warnings before the first session, on real servers where such can be had. */
import assert from 'node:assert/strict'
import { redisCall, startRedis, startRedisPair, wanted } from 'holdfast-lab/servers'
import { describe, test } from 'vitest'
import { libraries } from '../../../../test/redis/clients.ts'
import { Rig, type RigOptions } from '../../../../test/redis/rig.ts'
import { callWith } from '../../../base/aborting.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { onEvent } from '../../../base/events.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { evictionOf, refusalOf, textOf } from '../client/index.ts'

const isRefusal = (pattern: RegExp) => (error: unknown) =>
  isHoldfastError(error, 'UNSUPPORTED') && pattern.test(error.message)

const nothing = { code: '', severity: 'note', what: '', why: '', fix: '' } as const

async function warningsDuring(work: () => Promise<unknown>): Promise<string[]> {
  const warnings: string[] = []
  const stop = onEvent('warning', ({ warning }) => warnings.push(warning))
  try {
    await work()
  } finally {
    stop()
  }
  return warnings
}

async function processWarningsDuring(work: () => Promise<unknown>): Promise<string[]> {
  const warnings: string[] = []
  const listener = (warning: Error & { code?: string }) =>
    void warnings.push(`${warning.code} ${warning.message}`)
  process.on('warning', listener)
  try {
    await work()
    // Node tells of a warning in the next tick.
    await new Promise((resolve) => setImmediate(resolve))
  } finally {
    process.off('warning', listener)
  }
  return warnings
}

describe('which servers are refused', () => {
  const infoOf = (version: string, role = 'master') =>
    `# Server\r\nredis_version:${version}\r\n# Replication\r\nrole:${role}\r\n`
  test.each(['2.8.0', '5.0.14', '6.0.20', '6.1.240'])('Redis %s is too old', (version) => {
    assert.match(textOf(refusalOf(infoOf(version)) ?? nothing), /6\.2 or newer is needed/)
  })
  test.each(['6.2.0', '6.2.14', '7.0.15', '7.4.1', '8.0.2', '10.1.0', 'unstable'])(
    'Redis %s is not',
    (version) => {
      assert.equal(refusalOf(infoOf(version)), null)
    },
  )
  test('a replica is refused', () => {
    assert.match(textOf(refusalOf(infoOf('7.2.0', 'slave')) ?? nothing), /is a replica/)
  })
  test('every policy that may remove a key with an expiry is warned of', () => {
    assert.equal(evictionOf('noeviction'), null)
    for (const policy of ['allkeys-lru', 'allkeys-lfu', 'volatile-lru', 'volatile-ttl', 'volatile-random'])
      assert.match(textOf(evictionOf(policy) ?? nothing), /may remove lock keys/)
  })
})

describe.runIf(wanted('redis'))('start-up checks of redis', () => {
  test('G12 a replica is refused, with what to do', async () => {
    await using pair = await startRedisPair()
    await using rig = new Rig()
    const locker = await rig.locker(pair.replica.url)
    await assert.rejects(locker.acquire('x'), isRefusal(/is a replica.*Connect to the primary/s))
    const onPrimary = await rig.locker(pair.primary.url)
    assert.equal(await (await onPrimary.acquire('x')).release(), 'released')
  })

  test('T34 a policy that may evict locks is warned of, and locks work', async () => {
    await using server = await startRedis({ settings: { 'maxmemory-policy': 'allkeys-lru' } })
    await using rig = new Rig()
    const locker = await rig.locker(server.url)
    const warnings = await warningsDuring(async () => (await locker.acquire('x')).release())
    assert.equal(warnings.length, 1)
    assert.match(warnings[0] ?? '', /maxmemory-policy is allkeys-lru/)
  })

  test('T34 without a listener the process is warned, once for two lockers, with a code', async () => {
    await using server = await startRedis({ settings: { 'maxmemory-policy': 'allkeys-lru' } })
    await using rig = new Rig()
    const ofProcess = await processWarningsDuring(async () => {
      for (const _ of [1, 2]) await (await (await rig.locker(server.url)).acquire('x')).release()
    })
    assert.equal(ofProcess.length, 1, String(ofProcess))
    assert.match(ofProcess[0] ?? '', /^HOLDFAST_REDIS_EVICTION redis: .*maxmemory-policy is allkeys-lru/)
  })

  test.each([
    ['none', { save: '', appendonly: 'no' }, 1],
    ['snapshots', { save: '3600 1', appendonly: 'no' }, 0],
    ['an append-only file', { save: '', appendonly: 'yes' }, 0],
  ])('G12 persistence of a server that issues tokens: %s', async (_, settings, expected) => {
    await using server = await startRedis({ settings })
    await using rig = new Rig()
    const fenced = await rig.fenced(server.url)
    const warnings = await warningsDuring(async () => (await fenced.acquire('x')).release())
    assert.equal(warnings.length, expected, String(warnings))
    for (const warning of warnings) assert.match(warning, /neither an append-only file nor snapshots/)
    const unfenced = await rig.locker(server.url)
    assert.deepEqual(await warningsDuring(async () => (await unfenced.acquire('y')).release()), [])
  })

  test('G12 a user without scripts, or without messages, is refused; one that may not look is warned', async () => {
    await using server = await startRedis()
    const setUser = (name: string, ...rules: string[]) =>
      redisCall(server, 'ACL', 'SETUSER', name, 'on', '>secret', '~*', '&*', '+@all', ...rules)
    await setUser('scriptless', '-eval', '-evalsha')
    await setUser('silent', '-subscribe')
    await setUser('mute', 'resetchannels')
    await setUser('blind', '-config', '-info')
    const urlOf = (user: string) => server.url.replace('redis://', `redis://${user}:secret@`)
    await using rig = new Rig()
    await assert.rejects(
      (await rig.locker(urlOf('scriptless'))).acquire('x'),
      isRefusal(/scripts.* is denied/s),
    )
    for (const user of ['silent', 'mute'])
      await assert.rejects((await rig.locker(urlOf(user))).acquire('x'), isRefusal(/denied/))
    const locker = await rig.locker(urlOf('blind'))
    const warnings = await warningsDuring(async () => (await locker.acquire('x')).release())
    assert.equal(warnings.length, 2)
  })

  test.each(['exists', 'time', 'set', 'get', 'publish', 'pexpire'])(
    'G12 a user to whom %s is denied inside scripts is told so at once, with the right to add',
    async (command) => {
      await using server = await startRedis()
      const rules = ['on', '>secret', '~*', '&*', '+@all', `-${command}`]
      await redisCall(server, 'ACL', 'SETUSER', 'limited', ...rules)
      const url = server.url.replace('redis://', 'redis://limited:secret@')
      await using rig = new Rig()
      for (const library of libraries) {
        const clock = createFakeClock()
        const locker = await rig.fenced(url, { library, backend: { clock } })
        // The fake clock stands still: a wait would never end.
        await assert.rejects(locker.acquire('x', { waitMs: 60_000 }), isRefusal(/ACL SETUSER <user> \+/))
      }
    },
  )

  test('G12 a right that is taken away ends an acquire, also in the middle of a step', async () => {
    await using server = await startRedis()
    const rules = ['on', '>secret', '~*', '&*', '+@all']
    await redisCall(server, 'ACL', 'SETUSER', 'limited', ...rules)
    await using rig = new Rig()
    const locker = await rig.locker(server.url.replace('redis://', 'redis://limited:secret@'))
    const lease = await locker.acquire('x')
    for (const command of ['exists', 'hset', 'zadd']) {
      await redisCall(server, 'ACL', 'SETUSER', 'limited', `-${command}`)
      const asked = { mode: 'shared', waitMs: 60_000 } as const
      await assert.rejects(locker.acquire(`shared ${command}`, asked), isRefusal(/ACL SETUSER <user> \+/))
      await redisCall(server, 'ACL', 'SETUSER', 'limited', `+${command}`)
    }
    assert.equal(await lease.release(), 'released')
  })

  async function diagnosis(rig: Rig, url: string, options: RigOptions = {}): Promise<string[]> {
    const findings = (await (await rig.backend(url, options)).diagnose?.(callWith())) ?? []
    for (const { what, why, fix } of findings) {
      for (const text of [what, why, fix]) assert.match(text, /\.$/)
      assert(!`${what}${why}${fix}`.includes('secret'), 'a finding shows no password')
    }
    return findings.map(({ severity, code }) => `${severity} ${code.replace('HOLDFAST_REDIS_', '')}`)
  }

  test('a server that is set up for locks has no findings', async () => {
    await using server = await startRedis({ settings: { appendonly: 'yes', appendfsync: 'always' } })
    await using rig = new Rig()
    assert.deepEqual(await diagnosis(rig, server.url), [])
  })

  test('diagnose tells what is told at start, and notes', async () => {
    await using server = await startRedis({ settings: { 'maxmemory-policy': 'volatile-lru', save: '' } })
    await using rig = new Rig()
    assert.deepEqual(await diagnosis(rig, server.url), ['danger EVICTION', 'note PERSISTENCE'])
    assert.deepEqual(await diagnosis(rig, server.url, { backend: { fencing: 'clock-backed' } }), [
      'danger EVICTION',
      'warning PERSISTENCE',
    ])
  })

  test('diagnose tells of replicas, which a fail-over makes dangerous', async () => {
    await using pair = await startRedisPair()
    await using rig = new Rig()
    assert((await diagnosis(rig, pair.primary.url)).includes('note REPLICAS'))
    const fenced = await rig.fenced(pair.primary.url)
    const found = await fenced.diagnose()
    assert.equal(found.find(({ code }) => code === 'HOLDFAST_REDIS_REPLICAS')?.severity, 'warning')
    // A set-up that many choose on purpose is no warning at each start.
    const warnings = await warningsDuring(async () => (await fenced.acquire('x')).release())
    assert.deepEqual(
      warnings.filter((warning) => /replica/.test(warning)),
      [],
    )
  })

  test('diagnose refuses no server, and says which would be', async () => {
    await using pair = await startRedisPair()
    await using rig = new Rig()
    assert((await diagnosis(rig, pair.replica.url)).includes('danger REPLICA'))
  })

  test('diagnose says what this user may not look at', async () => {
    await using server = await startRedis()
    const rules = ['on', '>secret', '~*', '&*', '+@all', '-config', '-info']
    await redisCall(server, 'ACL', 'SETUSER', 'blind', ...rules)
    await using rig = new Rig()
    const url = server.url.replace('redis://', 'redis://blind:secret@')
    assert.deepEqual(await diagnosis(rig, url), ['warning UNCHECKED', 'warning UNCHECKED'])
  })

  test('G11 no error shows the password', async () => {
    await using server = await startRedis()
    await using rig = new Rig()
    const locker = await rig.locker(server.url.replace('redis://', 'redis://nobody:wrong-password@'), {
      locker: { callTimeoutMs: 2_000 },
    })
    const failure = await locker.acquire('x', { waitMs: 1_000 }).then(
      () => '',
      (error: unknown) => String(error) + JSON.stringify(error) + String((error as Error).cause),
    )
    assert(!failure.includes('wrong-password'))
  })
})
