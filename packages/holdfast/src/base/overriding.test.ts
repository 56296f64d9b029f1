import { expect, test } from 'vitest'
import { overriding } from './overriding.ts'

class Counter {
  readonly step: number = 1
  #count = 0

  get count(): number {
    return this.#count
  }

  add(): number {
    this.#count += this.step
    return this.#count
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#count = -1
  }
}

class Fast extends Counter {
  override readonly step = 10
}

test('what is not overridden is that of the original', async () => {
  const original = new Fast()
  const { add } = overriding<Counter>(original, {})
  expect([add(), original.count]).toEqual([10, 10])
  const again = overriding(overriding<Counter>(original, {}), { add: () => 0 })
  expect([again.add(), again.count, again.step]).toEqual([0, 10, 10])
})

/** The test runner translates `await using` into something else. Node itself reads it from version 24 on. */
const scopes: [string, (it: AsyncDisposable) => Promise<void>][] = [
  [
    'as the test runner translates it',
    async (it) => {
      await using _ = it
    },
  ],
]
if (Number.parseInt(process.versions.node, 10) >= 24)
  scopes.push([
    'as Node runs it',
    new Function('it', 'return (async () => { await using _ = it })()') as (
      it: AsyncDisposable,
    ) => Promise<void>,
  ])

test.each(scopes)('await using disposes of the original, %s', async (_, scope) => {
  const original = new Counter()
  await scope(overriding(original, {}))
  expect(original.count).toBe(-1)
  const own = { [Symbol.asyncDispose]: async () => {} }
  const other = new Counter()
  await scope(overriding(other, own))
  expect(other.count).toBe(0)
})
