/**
 * Schedules of holders that overtake each other: pauses between all requests, lost answers, late and repeated requests. What
 * took effect is read from the store's own history, and compared with what the holders were told.
 */
import assert from 'node:assert/strict'
import { isHoldfastError } from '../../src/base/errors.ts'
import { type Fence, makeFence } from '../../src/base/fence.ts'
import type { Random } from '../../src/base/ids.ts'
import { type ObjectStore, objectGuard } from '../../src/guards/object.ts'
import { createFakeClock } from '../../src/testing/fake-clock.ts'
import { seededRandom } from '../../src/testing/seeded-random.ts'
import { SimulatedStore } from './simulated-store.ts'

const holders = [1n, 2n, 3n]
const CALLS = 2

/** What a holder was told of one call. */
interface Told {
  readonly kind: 'update' | 'write' | 'read'
  readonly token: bigint
  /** What it wrote. */
  readonly value: string
  /** What it read. */
  seen?: string | null
  /** Changes that had taken effect when it began, and when it was told. */
  readonly from: number
  until: number
  outcome: 'done' | 'not-applied' | 'unknown'
}

interface Version {
  readonly token: bigint
  readonly value: string | null
  /** The change that made it. */
  readonly at: number
}

interface Client {
  get(): Promise<string | null>
  put(value: string): Promise<void>
  update(change: (seen: string | null) => string): Promise<void>
  collect?(): Promise<unknown>
}

function guarded(store: ObjectStore, token: bigint, random: Random): Client {
  const guard = objectGuard({ store, clock: createFakeClock(), random })
  const fence: Fence = makeFence({ issuer: 'i', name: 'n', mode: 'exclusive', token, grant: `g${token}` })
  const text = (body: Uint8Array | null) => (body === null ? null : new TextDecoder().decode(body))
  return {
    get: async () => text(await guard.get(fence)),
    put: (value) => guard.put(fence, value),
    update: (change) => guard.run(fence, async (tx) => tx.put(change(text(await tx.get())))),
    collect: () => guard.collect('n'),
  }
}

/** The mark in the metadata of the object itself, whose ETag is a hash of the body alone. */
function naive(store: ObjectStore, token: bigint): Client {
  const look = async () => {
    const found = await store.get('n')
    const { mark = '0', data = null } = found ? JSON.parse(new TextDecoder().decode(found.body)) : {}
    if (BigInt(mark) > token) throw Object.assign(new Error('stale'), { isRefusal: true })
    return { mark: BigInt(mark), data: data as string | null, etag: found?.etag }
  }
  const put = async (data: string | null, etag: string | undefined) => {
    const condition = etag === undefined ? { ifNoneMatch: '*' as const } : { ifMatch: etag }
    const written = await store.put('n', JSON.stringify({ mark: `${token}`, data }), condition)
    if (written === null) throw Object.assign(new Error('conflict'), { isRefusal: true })
  }
  const get = async () => {
    const { mark, data, etag } = await look()
    if (mark < token) await put(data, etag)
    return data
  }
  return {
    get,
    put: async (value) => put(value, (await look()).etag),
    update: async (change) => {
      const data = await get()
      await put(change(data), (await look()).etag)
    },
  }
}

async function play(seed: number, make: typeof guarded, store: SimulatedStore): Promise<readonly Told[]> {
  const random = seededRandom(seed ^ 0x5bd1e995)
  const told: Told[] = []
  const call = async (client: Client, token: bigint, n: number) => {
    const kind = (['update', 'update', 'write', 'read'] as const)[Math.floor(random.fraction() * 4)] ?? 'read'
    const value = `${token}.${n}`
    const entry: Told = { kind, token, value, from: store.changes.length, until: 0, outcome: 'done' }
    told.push(entry)
    try {
      if (kind === 'read') entry.seen = await client.get()
      else if (kind === 'write') await client.put(value)
      else
        await client.update((seen) => {
          entry.seen = seen
          return value
        })
    } catch (error) {
      entry.outcome = isRefusal(error) ? 'not-applied' : 'unknown'
    }
    entry.until = store.changes.length
  }
  const hold = async (token: bigint) => {
    const client = make(store.client, token, random)
    for (let n = 0; n < CALLS; n++) {
      await call(client, token, n)
      if (random.fraction() < 0.2) await client.collect?.().catch(() => {})
    }
  }
  for (const token of holders) store.later(() => void hold(token))
  await store.play()
  assert.equal(told.length, holders.length * CALLS, 'a call never ended')
  return told
}

function isRefusal(error: unknown): boolean {
  if (isHoldfastError(error, 'BACKEND_UNAVAILABLE')) return error.outcome === 'not-applied'
  return isHoldfastError(error) || (error as { isRefusal?: boolean }).isRefusal === true
}

/** Says what is wrong; null if nothing is. */
function judge(versions: readonly Version[], told: readonly Told[]): string | null {
  for (const [index, { token }] of versions.entries())
    if (token < (versions[index - 1]?.token ?? 0n)) return `token ${token} took effect after a newer one`
  for (const { kind, token, value, outcome, seen = null, from, until } of told) {
    const applied = versions.findIndex((version) => version.value === value)
    if (kind === 'read') {
      const wasThere = versions.some((version, index) => {
        const next = versions[index + 1]?.at ?? Number.POSITIVE_INFINITY
        return version.value === seen && version.token === token && version.at < until && next >= from
      })
      if (outcome === 'done' && !wasThere)
        return `holder ${token} has read ${seen}, which was not there for it`
      continue
    }
    if (outcome === 'done' && applied < 0) return `the write ${value} was acknowledged and lost`
    if (outcome === 'not-applied' && applied >= 0) return `the write ${value} was refused and applied`
    if (applied < 0) continue
    const again = versions.findIndex(
      (version, index) => version.value === value && versions[index - 1]?.value !== value && index > applied,
    )
    if (again >= 0) return `the write ${value} was applied twice`
    const before = versions[applied - 1]?.value ?? null
    if (kind === 'update' && before !== seen)
      return `the update ${value} was made from ${seen}, over ${before}`
  }
  return null
}

/** The heads that there were, with the data that each referred to at the time. */
function versionsOf({ changes }: SimulatedStore): Version[] {
  const data = new Map<string, string>()
  const versions: Version[] = []
  changes.forEach(({ key, body }, at) => {
    if (body === null) return
    if (!key.endsWith('.head')) data.set(key, body)
    else {
      const { token, ptr } = JSON.parse(body)
      versions.push({ token: BigInt(token), value: ptr === null ? null : (data.get(ptr) ?? 'no data'), at })
    }
  })
  return versions
}

/** Plays the guard with these seeds; rejects at the first that shows something wrong. Answers how the calls ended. */
export async function playGuard(seeds: number): Promise<{ calls: number; done: number; refused: number }> {
  const totals = { calls: 0, done: 0, refused: 0 }
  for (let seed = 1; seed <= seeds; seed++) {
    const store = new SimulatedStore(seededRandom(seed))
    const told = await play(seed, guarded, store)
    assert.equal(judge(versionsOf(store), told), null, `seed ${seed}`)
    const ptr = JSON.parse(store.objects.get('n.head')?.body ?? '{ "ptr": null }').ptr
    assert.ok(
      ptr === null || store.objects.has(ptr),
      `seed ${seed}: the data of the newest write was collected`,
    )
    totals.calls += told.length
    totals.done += told.filter(({ outcome }) => outcome === 'done').length
    totals.refused += told.filter(({ outcome }) => outcome === 'not-applied').length
  }
  return totals
}

/** Plays the naive protocol with these seeds; answers in how many of them something was wrong. */
export async function playNaive(seeds: number): Promise<number> {
  let wrong = 0
  for (let seed = 1; seed <= seeds; seed++) {
    const store = new SimulatedStore(seededRandom(seed), (body) => `etag ${JSON.parse(body).data}`)
    const told = await play(seed, naive, store)
    const versions = store.changes.map(({ body }, at) => {
      const { mark, data } = JSON.parse(body ?? '{}')
      return { token: BigInt(mark), value: data, at }
    })
    if (judge(versions, told) !== null) wrong++
  }
  return wrong
}
