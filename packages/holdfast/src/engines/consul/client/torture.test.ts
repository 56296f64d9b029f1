/**
 * Three servers that answer with resets, half answers, garbage, silence and good answers, by a seed. Whatever they do: each call settles
 * within its limit with an outcome that is true, nothing is left in flight, and the client works when they do.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, test } from 'vitest'
import { type Answer, names, TortureServer } from '../../../../test/consul/torture.ts'
import { newSeed } from '../../../../test/seed.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { seededRandom } from '../../../testing/seeded-random.ts'
import * as consul from './index.ts'

const STEPS = 250
/** Of the fake clock. More than all limits of the client together. */
const LONG_MS = 90_000
/** Of this process, which is also that of the servers. */
const MAX_GROWTH = 50 * 2 ** 20

/** The number by which a request and its answer are known. */
function numberOf(path: string, body: string): number {
  const [, polled] = /^\/v1\/kv\/(\d+)/.exec(path) ?? []
  if (polled !== undefined) return Number(polled)
  if (path === '/v1/session/create') return Number.parseInt(JSON.parse(body).TTL, 10)
  return Number(JSON.parse(body)[0].KV.Key)
}

function goodAnswer(path: string, body: string): Answer {
  if (path === '/v1/status/leader') return { status: 200, body: '"127.0.0.1:8300"' }
  const number = numberOf(path, body)
  if (path === '/v1/session/create') return { status: 200, body: JSON.stringify({ ID: String(number) }) }
  const entry = { Key: String(number), Value: null, Flags: consul.FLAGS, CreateIndex: 5, ModifyIndex: 5 }
  if (path.startsWith('/v1/kv/'))
    return { status: 200, body: JSON.stringify([entry]), headers: { 'x-consul-index': '7' } }
  return { status: 200, body: JSON.stringify({ Results: [{ KV: entry }], Errors: null }) }
}

/** A 'repeatable' write may be applied twice. */
const kinds = ['read', 'write', 'repeatable', 'session', 'poll'] as const

interface Asked {
  readonly kind: (typeof kinds)[number]
  readonly number: number
  readonly call: Cancellation
  settled?: 'answered' | 'not-applied' | 'unknown'
  wrong?: unknown
}

async function asked(client: consul.ConsulClient, { kind, number, call }: Asked): Promise<number> {
  const key = String(number)
  if (kind === 'session')
    return Number(await consul.createSession(client, { ttlMs: number, behavior: 'delete' }, call))
  if (kind === 'poll') return Number((await consul.pollTree(client, key, 5n, call.signal)).seen?.[0]?.key)
  const operation = kind === 'read' ? consul.tree(key) : consul.set(key, 'x')
  const again = kind === 'repeatable' ? { onAgain: () => {} } : {}
  const { entries } = await client.transact([operation], call, again)
  return Number(entries?.[0]?.key)
}

function memoryInUse(): number {
  globalThis.gc?.()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

describe('servers that behave badly in every way', { timeout: 120_000 }, () => {
  test('T96 T103 each call settles with a true outcome, and nothing is left', async () => {
    const seed = newSeed()
    const label = `seed ${seed}`
    const random = seededRandom(seed)
    const clock = createFakeClock()
    const servedBy = new Map<number, number>()
    const served = (path: string, body: string) => {
      const number = numberOf(path, body)
      servedBy.set(number, (servedBy.get(number) ?? 0) + 1)
    }
    await using stack = new AsyncDisposableStack()
    const tortured: TortureServer[] = []
    for (let count = 0; count < 3; count++)
      tortured.push(stack.use(await TortureServer.start({ answer: goodAnswer, served, random })))
    const client = new consul.ConsulClient('consul', { hosts: tortured.map(({ url }) => url) }, clock)
    stack.defer(() => client.close())
    const before = memoryInUse()

    const all: Asked[] = []
    const start = () => {
      const kind = kinds[Math.floor(random.fraction() * kinds.length)] ?? 'read'
      const one: Asked = { kind, number: all.length + 1, call: new Cancellation() }
      all.push(one)
      asked(client, one).then(
        (number) => {
          one.settled = 'answered'
          if (number !== one.number) one.wrong = `the answer of ${number}`
        },
        (error: unknown) => {
          if (isHoldfastError(error, 'BACKEND_UNAVAILABLE')) one.settled = error.outcome
          // A poll that fails says nothing of itself: it only reads.
          else if (one.kind === 'poll') one.settled = 'not-applied'
          else one.wrong = error
        },
      )
      if (random.fraction() < 0.8)
        clock.setTimer(random.fraction() * 4_000, () => one.call.cancel(new Error('its limit')))
    }
    const isLate = ({ kind, call, settled, wrong }: Asked) =>
      // Polls are not given up: they end by themselves.
      kind !== 'poll' && call.cancelled && !settled && !wrong
    const step = async (ms: number) => {
      await clock.advance(ms)
      await new Promise((resolve) => setTimeout(resolve, 2))
    }
    for (let count = 0; count < STEPS; count++) {
      for (let more = random.fraction() * 4; more > 1; more--) start()
      await step(random.fraction() * 300)
      expect(all.filter(isLate), `${label}: cancelled, and not settled`).toEqual([])
    }
    for (const server of tortured) server.heal()
    for (let passed = 0; passed < LONG_MS; passed += 500) await step(500)

    const unsettled = all.filter(({ settled, wrong }) => settled === undefined && wrong === undefined)
    expect(unsettled, `${label}: not settled`).toEqual([])
    const wrong = all.filter((one) => one.wrong !== undefined)
    expect(wrong, label).toEqual([])
    const times = (one: Asked) => servedBy.get(one.number) ?? 0
    const twice = all.filter((one) => one.kind === 'write' && times(one) > 1)
    expect(twice, `${label}: writes that were served twice`).toEqual([])
    const isChange = ({ kind }: Asked) => kind !== 'read' && kind !== 'poll'
    const untrue = all.filter((one) => isChange(one) && one.settled === 'not-applied' && times(one) > 0)
    expect(untrue, `${label}: served, and said to be not applied`).toEqual([])
    const unserved = all.filter((one) => one.settled === 'answered' && times(one) === 0)
    expect(unserved, `${label}: answered by nobody`).toEqual([])
    const given = new Set(tortured.flatMap((server) => [...server.given]))
    expect(
      names.filter((name) => !given.has(name)),
      `${label}: not given`,
    ).toEqual([])
    expect(new Set(all.map(({ settled }) => settled)).size, `${label}: every outcome was seen`).toBe(3)

    // The client works, and what it has left is gone.
    const last: Asked = { kind: 'write', number: 1e9, call: new Cancellation() }
    expect(await asked(client, last), label).toBe(1e9)
    const open = () => tortured.reduce((sum, server) => sum + server.open, 0)
    for (let tries = 0; open() > 17 && tries < 100; tries++) await step(500)
    expect(open(), `${label}: connections`).toBeLessThanOrEqual(17)
    expect(client.inFlight, `${label}: in flight`).toBe(0)
    expect(memoryInUse() - before, `${label}: bytes that stay`).toBeLessThan(MAX_GROWTH)
  })

  test('T100 T103 an answer without an end is given up, however fast it comes', async () => {
    let sent = 0
    const part = Buffer.alloc(2 ** 20, ' ')
    const server = createServer((request, response) => {
      if (request.url === '/v1/status/leader') {
        response.end('"x"')
        return
      }
      const more = () => {
        for (let room = true; room && !response.destroyed; sent += part.length) room = response.write(part)
      }
      response.on('drain', more)
      more()
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const hosts = [`http://127.0.0.1:${(server.address() as AddressInfo).port}`]
    const client = new consul.ConsulClient('consul', { hosts }, createFakeClock())
    await expect(client.transact([consul.set('a', 'x')], neverCancelled)).rejects.toMatchObject({
      outcome: 'unknown',
    })
    // And what lies in sockets.
    expect(sent).toBeLessThan(2 * 64 * 2 ** 20)
    client.close()
    server.close()
    server.closeAllConnections()
  })
})
