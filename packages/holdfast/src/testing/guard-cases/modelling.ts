/**
 * Random sequences against a model that is written the other way round: it keeps every fence that was ever
 * accepted and asks the rule's own words of each, where a guard keeps a few numbers. Apart from the model, whatever
 * passes is compared with all that ever passed, as if nothing could be forgotten: that is G5 itself.
 */
import assert from 'node:assert/strict'
import type { Fence } from '../../base/fence.ts'
import { guardTopic } from './case.ts'
import type { GuardStage } from './stage.ts'

class Model {
  readonly #seen = new Map<string, Fence[]>()
  readonly #forgotten: Fence[] = []
  /** Fences that had been forgotten when a name was seen for the first time, or for the first time again. */
  readonly #forgottenBefore = new Map<string, readonly Fence[]>()

  accepts(fence: Fence): boolean {
    const seen = this.#seen.get(fence.name)
    if (seen === undefined)
      return this.#forgotten.every(
        (old) => fence.token > old.token || (isSame(fence, old) && this.#isNewest(old)),
      )
    if (fence.mode === 'exclusive') return seen.every((old) => fence.token > old.token || isSame(fence, old))
    const [first] = seen
    const forgotten = this.#forgottenBefore.get(fence.name) ?? []
    return (
      seen.every((old) => old.mode === 'shared' || fence.token > old.token) &&
      forgotten.every((old) => fence.token > old.token || (first !== undefined && isSame(fence, first)))
    )
  }

  remember(fence: Fence): void {
    const seen = this.#seen.get(fence.name)
    if (seen === undefined) this.#forgottenBefore.set(fence.name, [...this.#forgotten])
    this.#seen.set(fence.name, [...(seen ?? []), fence])
  }

  forgetAll(): void {
    for (const fences of this.#seen.values()) this.#forgotten.push(...fences)
    this.#seen.clear()
  }

  #isNewest(fence: Fence): boolean {
    return this.#forgotten.every((other) => other.token <= fence.token)
  }
}

/** Which of the fences that ever passed must keep this one out. */
function newerThan(fence: Fence, passed: readonly Fence[]): Fence | undefined {
  return passed.find(
    (old) =>
      old.name === fence.name &&
      old.token > fence.token &&
      (old.mode === 'exclusive' || fence.mode === 'exclusive'),
  )
}

function isSame(a: Fence, b: Fence): boolean {
  return a.token === b.token && a.grant === b.grant && a.mode === b.mode
}

/** Small and repeatable; the quality of its numbers does not matter here. */
function randomFrom(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

async function compare(stage: GuardStage, seed: number, steps: number): Promise<void> {
  const random = randomFrom(seed)
  const guard = await stage.guard({ name: `model ${seed}` })
  const model = new Model()
  // Tokens are ordered across names, and every token belongs to one grant of one name and mode, as lockers issue them.
  const issued: Fence[] = []
  const passed: Fence[] = []
  for (let step = 0; step < steps; step++) {
    if (issued.length === 0 || random(4) === 0) {
      const mode = random(2) === 0 ? 'exclusive' : 'shared'
      issued.push(stage.fence(BigInt(issued.length + 1), { name: `n${random(3)}`, mode }))
    }
    const recent = Math.max(0, issued.length - 1 - random(6))
    const fence = issued[recent] as Fence
    const failure = random(5) === 0 ? new Error('planted') : null
    const expected = model.accepts(fence) ? (failure ?? 'applied') : 'FENCE_STALE'
    const outcome = await guard
      .run(fence, () => {
        if (failure !== null) throw failure
      })
      .then(
        () => 'applied',
        (error: unknown) => (error === failure ? failure : (error as { code?: string }).code),
      )
    const where = `seed ${seed}, step ${step}: ${fence.mode} ${fence.name} ${fence.token}`
    assert.equal(outcome, expected, where)
    if (outcome === 'applied') {
      assert.equal(newerThan(fence, passed)?.token, undefined, `${where} passed after something newer`)
      model.remember(fence)
      passed.push(fence)
    }
    if (random(15) === 0) {
      await guard.prune({ untouchedForMs: 0 })
      model.forgetAll()
    }
  }
}

export const modellingCases = guardTopic('against a model', [
  {
    rule: 'D140',
    title: 'G5 random sequences of fences are judged as by a model that remembers everything',
    async play(stage) {
      for (let seed = 1; seed <= 5; seed++) await compare(stage, seed, 120)
    },
  },
])
