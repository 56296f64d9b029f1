import { expect, test } from 'vitest'
import { run } from '../support/run.ts'

test('T53 there is one leader at a time, also when it is killed, frozen and stopped', async () => {
  // It checks itself; here it is enough that it says what it found.
  expect(await run('election')).toEqual([
    expect.stringMatching(/^\w+ led, and was killed\.$/),
    expect.stringMatching(/^\w+ led, froze before a write and was deposed; its write was refused\.$/),
    expect.stringMatching(/^\w+ led, and stopped when it was asked to; \w+ leads now\.$/),
    expect.stringMatching(/^Each leader’s numbers stand together/),
  ])
})
