import { describe, test } from 'vitest'
import { checkTokens } from './g2-tokens.ts'
import { expectHeld, expectNotJudged, expectViolated } from './testing/expectations.ts'
import { Story } from './testing/story.ts'

describe('G2 by the engine’s own history', () => {
  test('a lower token after a higher one, on another name', () => {
    const story = new Story()
      .engine(0, 'granted', 'a', { token: 7n })
      .engine(1, 'granted', 'b', { token: 6n, name: 'other' })
    expectViolated(checkTokens(story.history()), 'Token 6 of b', 'not greater than token 7 of a')
  })

  test('T68 one token twice', () => {
    const story = new Story()
      .engine(0, 'granted', 'a', { token: 7n })
      .engine(1, 'granted', 'b', { token: 7n })
    expectViolated(checkTokens(story.history()), 'Token 7 of b')
  })

  test('T38 a counter that restarts', () => {
    const story = new Story()
      .engine(0, 'granted', 'a', { token: 41n })
      .engine(1, 'deleted', 'a')
      .engine(2, 'granted', 'b', { token: 1n })
    expectViolated(checkTokens(story.history()), 'Token 1 of b')
  })

  test('T37 a client whose token is not its grant’s', () => {
    const story = new Story().acquire('A', 0, 10, { token: 9n }).engine(5, 'granted', 'a', { token: 8n })
    expectViolated(checkTokens(story.history()), 'A acquire', 'the engine granted: 8')
  })

  test('a token that is no positive number of 63 bits', () => {
    const story = new Story().engine(0, 'granted', 'a', { token: 2n ** 63n })
    expectViolated(checkTokens(story.history()), 'not a positive number of 63 bits')
  })

  test('good: the largest token there is; and a grant whose token only the client knows', () => {
    const story = new Story()
      .engine(0, 'granted', 'a', { token: 1n })
      .acquire('B', 1, 9, { token: 2n })
      .engine(5, 'granted', 'b')
      .engine(10, 'granted', 'c', { token: 2n ** 63n - 1n })
    expectHeld(checkTokens(story.history()))
  })

  test('good: gaps, a grant that is told twice, and two issuers', () => {
    const story = new Story()
      .engine(0, 'granted', 'a', { token: 5n })
      .engine(1, 'granted', 'a', { token: 5n })
      .engine(2, 'granted', 'b', { token: 900n })
      .engine(3, 'granted', 'c', { token: 3n, issuer: 'another' })
    expectHeld(checkTokens(story.history()))
  })
})

describe('G2 by what the clients saw', () => {
  test('an acquire that was invoked after another had returned has a lower token', () => {
    const story = new Story()
      .acquire('A', 0, 10, { token: 5n })
      .acquire('B', 11, 20, { token: 4n, name: 'other' })
    expectViolated(checkTokens(story.history()), 'B acquire', 'lower token', 'A acquire')
  })

  test('two leases with the same token, even concurrent ones', () => {
    const story = new Story()
      .acquire('A', 0, 10, { token: 5n })
      .acquire('B', 5, 20, { token: 5n, name: 'other' })
    expectViolated(checkTokens(story.history()), 'got the token that A acquire')
  })

  test('T39 re-entry that changes the token', () => {
    const story = new Story().acquire('A', 0, 10, { token: 5n }).acquire('A', 20, 30, { token: 6n })
    expectViolated(checkTokens(story.history()), 're-entry keeps it')
  })

  test('good: concurrent acquires may be granted in either order, also with ends at the same moment', () => {
    const story = new Story()
      .acquire('B', 10, 20, { token: 4n, name: 'other' })
      .acquire('A', 0, 10, { token: 5n })
    expectHeld(checkTokens(story.history()))
  })

  test('good: re-entry with the same token, and an unknown acquire without one', () => {
    const story = new Story()
      .acquire('A', 0, 10, { token: 5n })
      .acquire('A', 20, 30, { token: 5n })
      .acquire('B', 40, 50, { outcome: 'unknown' })
      .acquire('C', 60, 70, { token: 6n })
    expectHeld(checkTokens(story.history()))
  })

  test('an engine without tokens cannot be judged', () => {
    const story = new Story({ fencing: 'unfenced' }).acquire('A', 0, 10)
    expectNotJudged(checkTokens(story.history()), 'issues no tokens')
  })
})
