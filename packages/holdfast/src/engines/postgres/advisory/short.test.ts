/** A request that is alone answers, and leaves behind, what it does together with another, in the function for batches. */
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type NamingSession, namingGrants } from '../../../../test/naming-grants.ts'
import { Rig } from '../../../../test/postgres-advisory/rig.ts'
import { publicIdOf } from '../../../base/ids.ts'
import type { AcquireRequest } from '../../../spi.ts'
import { call, request, shared } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import type { PostgresAdvisoryBackend } from './backend.ts'
import { defaultKey } from './keys.ts'
import { CHANNEL, waitersOf } from './schema.ts'

const HOLDERS = 'holdfast.advisory_holders'
type Session = NamingSession<'fenced'>

/** One session asks. What it is asked for is new in each scene. */
interface Scene {
  readonly ours: Session
  readonly theirs: Session
  readonly no: number
  readonly name: string
  readonly key: bigint
}

describe.runIf(wanted('postgres'))('short ways of postgres-advisory', () => {
  let server: Server
  let rig: Rig
  let byHand: pg.Client
  const heard: string[] = []
  beforeAll(async () => {
    server = await startPostgres()
    rig = new Rig(server)
    byHand = await rig.byHand()
    await byHand.query(`LISTEN ${CHANNEL}; LISTEN marker`)
    byHand.on('notification', ({ channel, payload }) => heard.push(payload || channel))
  })
  afterAll(async () => {
    await rig?.[Symbol.asyncDispose]()
    await server?.stop()
  })

  const take = (session: Session, asked: AcquireRequest) => session.tryAcquire(asked, call())
  const free = (session: Session, asked: AcquireRequest) => session.release(asked, { keepForMs: 0 }, call())
  const pair = async (session: Session, asked: AcquireRequest) => {
    await take(session, asked)
    await free(session, asked)
  }
  /** The kind of an answer, or the failure. */
  const settled = (asked: Promise<{ readonly kind: string }>) =>
    asked.then(
      ({ kind }) => kind,
      ({ code, message }) => `${code}: ${message}`,
    )

  let scenes = 1_000_000
  const numberOf = (name: string) => BigInt(name.replaceAll(/\D/g, ''))
  const backends = new Map<string, Promise<PostgresAdvisoryBackend>>()
  async function withScene<T>(keys: string, body: (scene: Scene) => Promise<T>): Promise<T> {
    const own = keys === 'of the user' ? { key: numberOf } : {}
    const opened = backends.get(keys) ?? rig.backend({ namespace: keys, ...own })
    backends.set(keys, opened)
    const backend = await opened
    const open = async () =>
      namingGrants(await backend.openSession({ id: newSessionId(), ttlMs: 60_000, holder: 'ada' }, call()))
    const no = ++scenes
    const name = `x${no}`
    const key = own.key?.(name) ?? defaultKey(keys, name)
    const scene = { ours: await open(), theirs: await open(), no, name, key }
    try {
      return await body(scene)
    } finally {
      await Promise.all([scene.ours.close(call()), scene.theirs.close(call())])
    }
  }

  /** Records that count, of what was asked for and of the filler whose slot is the oldest; locks of the key; notifications about it. */
  async function leftBy({ no, key }: Scene, { attempt }: AcquireRequest): Promise<unknown> {
    await byHand.query('NOTIFY marker')
    while (!heard.includes('marker')) await new Promise((resolve) => setImmediate(resolve))
    return {
      heard: heard.splice(0).filter((payload) => payload.endsWith(` ${key}`)).length,
      locks: await rig.sql(
        'SELECT count(*)::int AS all FROM holdfast.advisory_locks WHERE granted AND key = $1',
        [key],
      ),
      records: await rig.sql(
        `SELECT h.name, key = $1 AS has_key, mode, note, owner, forced, id = $2 AS is_ours,
          since > now() - interval '1 minute' AS is_new
        FROM ${HOLDERS} h JOIN holdfast.advisory_connections c USING (conn)
        WHERE name IN ('x${no}', 'filler0x${no}') AND key IS NOT NULL ORDER BY is_ours, 1`,
        [key, publicIdOf(attempt)],
      ),
    }
  }

  /** Without what is another in each scene. */
  const readable = (outcome: unknown, { no, key }: Scene) =>
    JSON.stringify(outcome, null, 1).replaceAll(String(key), 'key').replaceAll(String(no), '')

  const slots: Readonly<Record<string, (scene: Scene) => Promise<unknown>>> = {
    'a slot without a record': async () => {},
    'the slot of its last claim': ({ ours, name }) => pair(ours, request(name)),
    'a slot that has no key': ({ ours, no }) => pair(ours, shared(`shared${no}0`)),
    'the slot of another key': ({ ours, no }) =>
      Promise.all(
        Array.from({ length: 64 }, (_, index) => pair(ours, request(`filler${index || '0'}x${no}`))),
      ),
  }
  const states: Readonly<Record<string, (scene: Scene) => Promise<unknown>>> = {
    'it is free': async () => {},
    'another session holds it': ({ theirs, name }) => take(theirs, request(name)),
    'others share it': ({ theirs, name }) => take(theirs, shared(name)),
    'another session held it': ({ theirs, name }) => pair(theirs, request(name)),
    'it is locked by hand': ({ key }) => byHand.query('SELECT pg_advisory_lock($1)', [key]),
    'another name with this key is held': ({ theirs, no }) => take(theirs, request(`y${no}`)),
    'old records were deleted': () => rig.sql(`DELETE FROM ${HOLDERS}`),
    'an operator has marked old records': () => rig.sql(`UPDATE ${HOLDERS} SET forced = 'stuck'`),
    'records cannot be written': () =>
      rig.sql(`ALTER TABLE ${HOLDERS} ADD CONSTRAINT broken CHECK (note <> 'a note') NOT VALID`),
    'there is no further token': () => rig.sql(`SELECT setval('holdfast.advisory_tokens', 4503599627370495)`),
  }
  async function repair(): Promise<void> {
    await rig.sql(`ALTER TABLE ${HOLDERS} DROP CONSTRAINT IF EXISTS broken`)
    // More than a scene draws.
    await rig.sql(`SELECT setval('holdfast.advisory_tokens', 1000::bigint * $1)`, [scenes])
    await byHand.query('SELECT pg_advisory_unlock_all()')
  }

  describe.each([
    ...Object.keys(slots).map((slot) => ['our own', slot] as const),
    // Of these, one may belong to two names.
    ...['the slot of its last claim', 'the slot of another key'].map(
      (slot) => ['of the user', slot] as const,
    ),
  ])('with keys %s, an acquire for %s', (keys, slot) => {
    test.each(Object.entries(states))('when %s', async (_, state) => {
      const outcomeOf = (isAlone: boolean) =>
        withScene(keys, async (scene) => {
          await slots[slot]?.(scene)
          await state(scene)
          const asked = request(scene.name, { note: 'a note', owner: 'an owner' })
          const asking = settled(take(scene.ours, asked))
          if (!isAlone) void settled(take(scene.ours, request(`company${scene.no}0`)))
          const answer = await asking
          const left = await leftBy(scene, asked)
          await repair()
          await free(scene.ours, asked)
          const freed = await leftBy(scene, asked)
          return readable({ answer, left, freed }, scene)
        })
      const alone = await outcomeOf(true)
      expect(await outcomeOf(false)).toEqual(alone)
    })
  })

  const held: typeof states = {
    'it is held': async () => {},
    'others wait for it': ({ key }) =>
      byHand.query(`SELECT pg_advisory_lock_shared(${waitersOf('$1::bigint')})`, [key]),
    'its record was deleted': () => rig.sql(`DELETE FROM ${HOLDERS}`),
    'an operator has marked it': () => rig.sql(`UPDATE ${HOLDERS} SET forced = 'stuck'`),
  }
  test.each(Object.entries(held))('a release when %s', async (_, state) => {
    const outcomeOf = (isAlone: boolean) =>
      withScene('our own', async (scene) => {
        const [asked, company] = [request(scene.name, { note: 'a note' }), request(`company${scene.no}`)]
        for (const each of [asked, company]) await take(scene.ours, each)
        await state(scene)
        const freeing = free(scene.ours, asked)
        if (!isAlone) void free(scene.ours, company)
        const answer = await freeing
        const left = await leftBy(scene, asked)
        await repair()
        const again = request(scene.name)
        const taken = await settled(take(scene.ours, again))
        return readable({ answer, left, taken, after: await leftBy(scene, again) }, scene)
      })
    const alone = await outcomeOf(true)
    expect(await outcomeOf(false)).toEqual(alone)
  })
})
