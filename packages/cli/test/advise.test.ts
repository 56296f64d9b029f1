/** Golden answers of `advise`, and the two pages that are generated from the sources. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { pages } from '../../../scripts/docs/command-line.ts'
import { root } from '../../../scripts/lib/repository.ts'
import { fits } from '../src/advice.data.ts'
import { type AdviseFlags, adviceFor } from '../src/advise.ts'
import { holdfast, onTerminal, run, start } from './command.ts'

describe('golden answers', () => {
  const all = (flags: AdviseFlags) => JSON.stringify(adviceFor(flags))

  test('double payments with Redlock: no lock, a unique key', () => {
    const advice = adviceFor({ for: 'payment', engine: 'redlock' })
    expect(advice).toMatchObject({ lock: 'no', answer: expect.stringMatching(/unique key/) })
    expect(advice.engine).toBeUndefined()
    expect(advice.code).toContain('idempotent')
  })

  test('a new system: not Redlock', () => {
    for (const { key } of fits)
      for (const purpose of ['efficiency', 'correctness'] as const)
        for (const reach of ['machine', 'region', 'regions'] as const) {
          expect(adviceFor({ for: key, purpose, reach }).engine).not.toBe('redlock')
          expect(adviceFor({ for: key, purpose, reach, engine: 'redlock' }).engine).not.toBe('redlock')
        }
    expect(all({ for: 'job', engine: 'redlock' })).toContain('no reason for Redlock')
  })

  test('one PostgreSQL and one cron job: a lease row', () => {
    const advice = adviceFor({ for: 'job', engine: 'postgres' })
    expect(advice).toMatchObject({ lock: 'yes', engine: 'postgres', ttlMs: 15_000 })
    expect(advice.answer).toContain('lease row')
    expect(advice.code).toContain('holdfast schedule')
  })

  test('a rate limit: a counter', () => {
    expect(adviceFor({ for: 'rate-limit', engine: 'redis' })).toMatchObject({
      lock: 'no',
      answer: expect.stringMatching(/^a counter/),
    })
  })

  test('the etcd of a Kubernetes control plane: no', () => {
    const advice = adviceFor({ for: 'leader', engine: 'kubernetes-etcd' })
    expect(advice.engine).toBe('etcd')
    expect(advice.remarks[0]).toMatch(/^Not the etcd of a Kubernetes control plane: .*stop the whole cluster/)
  })

  test('correctness needs a guard, and a machine’s engine does not reach a region', () => {
    const safe = adviceFor({ for: 'external', purpose: 'correctness', engine: 'etcd' })
    expect(safe.gives.join()).toContain('put a guard')
    expect(safe.givesNot.join()).toContain('Without a guard')
    expect(adviceFor({ for: 'job', engine: 'sqlite' }).engine).toBe('postgres')
    expect(adviceFor({ for: 'job', engine: 'sqlite', reach: 'machine' }).engine).toBe('sqlite')
    expect(all({ for: 'job', reach: 'regions' })).toContain('round trip between them')
  })

  test('the rate is held against the hand-over, and the TTL follows the longest pause', () => {
    expect(all({ for: 'external', engine: 'redis', rate: 100, hold: 20 })).toContain('= 45 grants a second')
    expect(all({ for: 'external', engine: 'redis', rate: 100, hold: 20 })).toContain('use more names')
    expect(all({ for: 'external', engine: 'redis', rate: 40, hold: 20 })).not.toContain('use more names')
    expect(adviceFor({ for: 'leader', pause: 60_000 }).ttlMs).toBe(90_000)
  })

  test('every answer names what no lock replaces', () => {
    for (const { key } of fits) {
      const { remarks } = adviceFor({ for: key })
      expect(remarks.join()).toMatch(/Reconciliation.*CRDTs/)
    }
  })
})

test('flags answer at once, and on a terminal it asks', async () => {
  const answered = await run(['advise', '--for', 'payment', '--engine', 'redlock'])
  expect(JSON.parse(answered.stdout)).toEqual(adviceFor({ for: 'payment', engine: 'redlock' }))
  const unknown = await run(['advise', '--for', 'everything'])
  expect([unknown.code, unknown.stderr]).toEqual([64, expect.stringMatching(/one of: row,.*external\.\n$/)])
  const asked = start([], { through: onTerminal(`exec ${holdfast} advise`), input: true })
  asked.process.stdin?.write('4\n')
  const { code, stdout } = await asked.ended
  expect(code).toBe(0)
  expect(stdout).toContain('No lock. Use a unique key')
})

test.each([...pages()])('%s is as its generator writes it (npm run docs:cli)', (path, text) => {
  expect(readFileSync(join(root, path), 'utf8')).toBe(text)
})
