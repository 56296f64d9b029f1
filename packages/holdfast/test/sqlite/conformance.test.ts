import { describe, test } from 'vitest'
import { sleep } from '../../src/core/clock.ts'
import type { Backend, BackendSession } from '../../src/spi.ts'
import { describeBackend, type World } from '../../src/testing/describe-backend.ts'
import { SqliteWorld } from './world.ts'

describeBackend({ name: 'sqlite', describe, test, createWorld, lacks: ['watch'] })

async function createWorld(): Promise<World<'fenced'>> {
  const world = new SqliteWorld()
  const { clock } = world
  let delayMs = 0
  /** There is no wire between a process and its file that could be slow, so here is one. */
  const delayed = <T extends Backend<'fenced'> | BackendSession<'fenced'>>(inner: T): T =>
    new Proxy(inner, {
      get(target, key) {
        const value: unknown = Reflect.get(target, key, target)
        if (typeof value !== 'function') return value
        if (key === 'enqueue' || typeof key === 'symbol') return value.bind(target)
        return async (...args: unknown[]) => {
          const answerDelayMs = delayMs
          const answer: unknown = await value.apply(target, args)
          if (answerDelayMs > 0) await sleep(clock, answerDelayMs)
          const isSession = key === 'openSession' || (key === 'attachSession' && answer !== null)
          return isSession ? delayed(answer as BackendSession<'fenced'>) : answer
        }
      },
    })
  return {
    clock,
    ttlMs: 1_000,
    resolutionMs: 1,
    passTime: (ms) => clock.advance(ms),
    client: async (options) => delayed(world.open(options)),
    restart: () => world.restart(),
    async deleteName(name) {
      world.sql('DELETE FROM holders WHERE name = ?', name)
    },
    async delayAnswers(ms) {
      delayMs = ms
    },
    countCommands: async () => world.clients.reduce((sum, client) => sum + client.statistics.statements, 0),
    close: () => world[Symbol.asyncDispose](),
  }
}
