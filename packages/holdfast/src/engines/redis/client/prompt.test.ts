/** The connection of our own that a renewal takes when the client is late (T85, shared clients): when it is opened, kept and closed. */
import assert from 'node:assert/strict'
import { type FaultyProxy, startProxy } from 'holdfast-lab/faults'
import { redisCall, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { type ClientLibrary, libraries } from '../../../../test/redis/clients.ts'
import { until } from '../../../../test/redis/rig.ts'
import { BackendUnavailableError, ClosedError } from '../../../base/errors.ts'
import { createFakeClock, type FakeClock } from '../../../testing/fake-clock.ts'
import { RedisConnection } from './connection.ts'
import { redisScript } from './script.ts'

const echo = redisScript('return ARGV[1]')
const failing = redisScript("return redis.call('LPUSH')")
const promptness = { afterMs: 1_000, openWithinMs: 2_000, confirms: () => true }

interface Blockable {
  blpop?(key: string, seconds: number): Promise<unknown>
  blPop?(key: string, seconds: number): Promise<unknown>
}

interface Stage {
  readonly connection: RedisConnection
  readonly clock: FakeClock
  readonly proxy: FaultyProxy
  /** How many the proxy has accepted so far. */
  opened(): number
  block(): void
  unblock(): Promise<unknown>
  /** Asks, and waits for so long that the other connection is used. */
  ask(
    text: string,
    signal?: AbortSignal,
    script?: typeof echo,
  ): Promise<{ answer?: unknown; error?: unknown }>
}

describe.runIf(wanted('redis'))('a prompt call', () => {
  let server: Server
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server?.stop())

  describe.each(libraries)('with $name', (library: ClientLibrary) => {
    const list = `prompt ${library.name}`

    async function staged(work: (stage: Stage) => Promise<void>) {
      let accepted = 0
      await using proxy = await startProxy(server, { label: () => String(++accepted) })
      const clock = createFakeClock()
      const { client, close } = await library.open(`redis://${proxy.host}:${proxy.port}`)
      const connection = new RedisConnection(client, { backend: 'redis', clock })
      await connection.run(echo, ['a'], ['ready'])
      const blockable = client as unknown as Blockable
      const block = () => {
        const blocked = blockable.blpop?.(list, 0) ?? blockable.blPop?.(list, 0)
        blocked?.catch(() => {})
      }
      const ask: Stage['ask'] = async (text, signal, script = echo) => {
        const outcome: { answer?: unknown; error?: unknown } = {}
        connection.runPromptly(script, ['a'], [text], signal, promptness).then(
          (answer) => Object.assign(outcome, { answer }),
          (error: unknown) => Object.assign(outcome, { error }),
        )
        await clock.advance(1_000)
        await turn()
        return outcome
      }
      const unblock = () => redisCall(server, 'LPUSH', list, 'x')
      try {
        await work({ connection, clock, proxy, opened: () => accepted, block, unblock, ask })
      } finally {
        connection.close()
        close()
        await redisCall(server, 'DEL', list)
      }
    }

    test('T85 is answered over one connection of our own while the client is blocked', () =>
      staged(async ({ block, ask, opened, connection }) => {
        block()
        for (const text of ['1', '2']) {
          const asked = await ask(text)
          await until('the answer', () => asked.answer === text)
        }
        assert.equal(opened(), 2)
        assert.match(connection.heldUpBy ?? '', /BLPOP/)
      }))

    test('T85 a connection that is accepted and not welcomed is given up, and the next call opens another', () =>
      staged(async ({ block, ask, opened, proxy, clock }) => {
        block()
        proxy.hold('down', ({ label }) => label === '2')
        const asked = await ask('1')
        await until('it is accepted', () => opened() === 2)
        await clock.advance(promptness.openWithinMs)
        assert.deepEqual(asked, {})
        const next = await ask('2')
        await until('the answer', () => next.answer === '2')
        proxy.heal()
        await until('the first one is closed', () => proxy.connections === 2)
      }))

    test('T85 a call that waits for the opening ends with its signal', () =>
      staged(async ({ block, ask, opened, proxy, unblock }) => {
        block()
        proxy.hold('down', ({ label }) => label === '2')
        const calling = new AbortController()
        const asked = await ask('1', calling.signal)
        const other = await ask('2')
        await until('it is accepted', () => opened() === 2)
        calling.abort(new ClosedError('The locker'))
        await until('the first has ended', () => asked.error !== undefined)
        proxy.heal()
        await until('the other goes on with the same connection', () => other.answer === '2')
        assert.equal(opened(), 2)
        await unblock()
      }))

    test('T85 neither a cancelled call nor a refusal of the server closes the connection that others use', () =>
      staged(async ({ block, ask, opened, proxy }) => {
        block()
        const first = await ask('1')
        await until('the answer', () => first.answer === '1')
        proxy.hold('down', ({ label }) => label === '2')
        const calling = new AbortController()
        const cancelled = await ask('2', calling.signal)
        const other = await ask('3')
        calling.abort(new ClosedError('The locker'))
        await until('it has ended', () => cancelled.error !== undefined)
        await turn()
        assert.equal(proxy.connections, 2)
        proxy.heal()
        await until('the other is answered', () => other.answer === '3')
        await ask('4', undefined, failing)
        const last = await ask('5')
        await until('the answer', () => last.answer === '5')
        assert.equal(opened(), 2)
      }))

    test('T85 a call that times out on the connection closes it, and the next one opens another', () =>
      staged(async ({ block, ask, opened, proxy }) => {
        block()
        const first = await ask('1')
        await until('the answer', () => first.answer === '1')
        proxy.hold('down', ({ label }) => label === '2')
        const calling = new AbortController()
        const late = await ask('2', calling.signal)
        calling.abort(new BackendUnavailableError('redis', 'keep-alive: no answer within 1000 ms', 'unknown'))
        await until('it has ended', () => late.error !== undefined)
        const next = await ask('3')
        await until('the answer', () => next.answer === '3')
        assert.equal(opened(), 3)
        proxy.heal()
        await until('the first one is closed', () => proxy.connections === 2)
      }))

    test('T85 a connection that was lost is replaced', () =>
      staged(async ({ block, ask, opened, proxy }) => {
        block()
        const first = await ask('1')
        await until('the answer', () => first.answer === '1')
        proxy.reset(({ label }) => label === '2')
        await until('it is lost', () => proxy.connections === 1)
        await turn()
        await until('another one answers', async () => (await ask('2')).answer === '2')
        assert.equal(opened(), 3)
      }))

    test('T85 no connection is opened while the client is not connected', () =>
      staged(async ({ connection, ask, opened, proxy }) => {
        proxy.hold('down')
        proxy.reset()
        await until('it connects again', () => !connection.isConnected && opened() === 2)
        const asked = await ask('1')
        await turn()
        assert.equal(opened(), 2)
        proxy.heal()
        await until('the client answers', () => asked.answer === '1')
      }))

    test('T85 an answer that confirms nothing is left to the client', () =>
      staged(async ({ connection, clock, block, unblock }) => {
        block()
        let asked = 0
        const confirms = () => {
          asked++
          return false
        }
        let isAnswered = false
        const answered = connection.runPromptly(echo, ['a'], ['1'], undefined, { ...promptness, confirms })
        answered.finally(() => {
          isAnswered = true
        })
        await clock.advance(1_000)
        await until('the other connection has answered', () => asked === 1)
        await turn()
        assert.equal(isAnswered, false)
        await unblock()
        assert.equal(await answered, '1')
      }))

    test('T85 a busy event loop opens no connection when the answer is there already', async () => {
      const { client, close } = await library.open(server.url)
      const connection = new RedisConnection(client, { backend: 'redis' })
      await connection.run(echo, ['a'], ['ready'])
      let opened = 0
      const dedicated = connection.dedicated.bind(connection)
      connection.dedicated = (...args) => {
        opened++
        return dedicated(...args)
      }
      const answered = connection.runPromptly(echo, ['a'], ['1'], undefined, { ...promptness, afterMs: 50 })
      await new Promise((resolve) => setImmediate(resolve))
      const startMs = performance.now()
      while (performance.now() - startMs < 200);
      assert.equal(await answered, '1')
      await turn()
      assert.equal(opened, 0)
      connection.close()
      close()
    })
  })
})

/** So long that what is there to be read has been read. */
function turn(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 20))
}
