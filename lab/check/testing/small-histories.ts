/** Small random histories of locks, about half of them linearizable: legal runs, blurred, and often damaged. */
import type { Act } from '../linearizability/model.ts'
import type { LockCall } from '../linearizability/models/call.ts'
import type { Legal } from './brute-force.ts'
import type { Random } from './random.ts'

export interface Kind {
  readonly legal: Legal
  readonly tokens: boolean
  readonly reentrant: boolean
  readonly weights: readonly number[]
}

export function smallHistory(random: Random, kind: Kind, most: number): Act<LockCall>[] {
  const owners = ['A', 'B', 'C'].slice(0, 2 + random.below(2))
  const calls = random.chance(0.9)
    ? legalCalls(random, kind, owners, most)
    : anyCalls(random, kind, owners, most)
  const acts = calls.map((call, index) => blur(random, call, index))
  const damages = random.chance(0.15) ? 0 : 1 + random.below(3)
  for (let damage = 0; damage < damages; damage++) damageOne(random, kind, acts, owners)
  return acts.map((act) => ({ ...act, label: () => describe(act) }))
}

function anyCall(random: Random, kind: Kind, owners: readonly string[], highest: bigint): LockCall {
  const owner = random.pick(owners)
  const weight = random.pick(kind.weights)
  if (random.chance(0.5)) return { kind: 'release', owner, weight }
  const token = highest + BigInt(random.below(3))
  return { kind: 'acquire', owner, weight, ...(kind.tokens && random.chance(0.85) ? { token } : {}) }
}

function anyCalls(random: Random, kind: Kind, owners: readonly string[], most: number): LockCall[] {
  const size = 1 + random.below(most)
  return Array.from({ length: size }, () => anyCall(random, kind, owners, BigInt(1 + random.below(4))))
}

function legalCalls(random: Random, kind: Kind, owners: readonly string[], most: number): LockCall[] {
  const size = most - random.below(random.chance(0.6) ? 2 : most - 1)
  const calls: LockCall[] = []
  let highest = 1n
  for (let tries = 0; calls.length < size && tries < 60; tries++) {
    const call = anyCall(random, kind, owners, highest)
    if (!kind.legal([...calls, call])) continue
    calls.push(call)
    if (call.token !== undefined && call.token > highest) highest = call.token
  }
  return calls
}

/** It took effect at a moment of its own; its ends are somewhere around. Equal places are wanted: they are tricky. */
function blur(random: Random, call: LockCall, index: number): Act<LockCall> {
  const reach = random.pick([1, 2, 2, 3, 8])
  const invoked = index * 2 - random.below(reach)
  const returned = index * 2 + random.below(reach)
  const act = { name: 'n', call, invoked, returned, certain: true, label: () => '' }
  return random.chance(0.15) ? forget(act) : act
}

function forget(act: Act<LockCall>): Act<LockCall> {
  const { token: _token, ...call } = act.call
  return { ...act, call, certain: false, returned: Infinity }
}

function damageOne(random: Random, kind: Kind, acts: Act<LockCall>[], owners: readonly string[]): void {
  const index = random.below(acts.length)
  const act = acts[index]
  if (act === undefined) return
  const { call } = act
  const ways: (() => Act<LockCall>)[] = [
    () => ({ ...act, call: { ...call, owner: random.pick(owners) } }),
    () => ({ ...act, call: anyCall(random, kind, owners, call.token ?? 1n) }),
    () => ({ ...act, invoked: act.invoked - random.below(5), returned: act.returned + random.below(5) }),
    () => ({ ...act, invoked: act.invoked + 3, returned: act.returned + 3 }),
    () => forget(act),
  ]
  if (call.token !== undefined) {
    const { token } = call
    ways.push(() => ({ ...act, call: { ...call, token: token + BigInt(random.below(5) - 2) } }))
  }
  if (!act.certain) ways.push(() => ({ ...act, certain: true, returned: act.invoked + random.below(6) }))
  acts[index] = random.pick(ways)()
}

export function describe({ call, invoked, returned, certain }: Act<LockCall>): string {
  const { kind, owner, token, weight } = call
  const facts = [token === undefined ? '' : ` token ${token}`, weight === 1 ? '' : ` weight ${weight}`].join(
    '',
  )
  return `${owner} ${kind}${facts} [${invoked}, ${returned}]${certain ? '' : ' unknown'}`
}
