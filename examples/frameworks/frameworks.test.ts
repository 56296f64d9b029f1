import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test('frameworks: Fastify, Express, Hono and NestJS end under load without a 500', async () => {
  // It compiles the server of NestJS, checks itself, and fails when a claim does not hold.
  const said = await run('frameworks')
  expect(said.at(-1)).toBe('All 25 claims hold.')
})
