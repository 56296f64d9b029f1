/** Records of locks that were given back stay, and must not be taken for records of locks that are held. */
import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type NamingSession, namingGrants } from '../../../../test/naming-grants.ts'
import { Rig } from '../../../../test/postgres-advisory/rig.ts'
import type { AcquireRequest } from '../../../spi.ts'
import { call, request, shared } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import { statementsFor } from './statements.ts'

const nextTurn = (turns: number) =>
  turns === 0 ? undefined : new Promise((resolve) => setImmediate(resolve))

describe.runIf(wanted('postgres'))('records of postgres-advisory', () => {
  let server: Server
  let rig: Rig
  beforeAll(async () => {
    server = await startPostgres()
    rig = new Rig(server)
  })
  afterAll(async () => {
    await rig?.[Symbol.asyncDispose]()
    await server?.stop()
  })

  const setUp = async (namespace: string) => {
    const backend = await rig.backend({ namespace })
    const open = async () => {
      const asked = { id: newSessionId(), ttlMs: 60_000, holder: 'test' }
      return namingGrants(await backend.openSession(asked, call()))
    }
    const shown = async () =>
      (await backend.list('', { limit: 1_000 }, call())).items.map(
        ({ name, holders }) => `${name} ${holders.map(({ mode }) => mode)}`,
      )
    return { open, shown }
  }
  type Session = NamingSession<'fenced'>
  const take = async (session: Session, asked: AcquireRequest) =>
    (await session.tryAcquire(asked, call())).kind
  const free = (session: Session, asked: AcquireRequest) => session.release(asked, { keepForMs: 0 }, call())

  test('what is shown and what the locks are is the same after every step of many sessions', async () => {
    const { open, shown } = await setUp('model')
    const sessions = [await open(), await open()]
    const held: { session: Session; asked: AcquireRequest }[] = []
    let random = 7
    const draw = (below: number) => {
      random = (random * 48_271) % 2_147_483_647
      return random % below
    }
    for (let step = 0; step < 400; step++) {
      const session = sessions[draw(2)] as Session
      if (held.length > 0 && draw(3) === 0) {
        // The next claim may ask before the last one has gone.
        const [gone] = held.splice(draw(held.length), 1)
        if (gone === undefined) continue
        const { name, mode } = gone.asked
        const again = mode === 'shared' ? shared(name) : request(name)
        const [, kind] = await Promise.all([free(gone.session, gone.asked), take(gone.session, again)])
        if (kind === 'granted') held.push({ session: gone.session, asked: again })
      } else if (held.length > 3 && draw(2) === 0) {
        const [gone] = held.splice(draw(held.length), 1)
        if (gone !== undefined) await free(gone.session, gone.asked)
      } else {
        const asks = Array.from({ length: 1 + draw(3) }, () => {
          const name = `n${draw(5)}`
          return draw(3) === 0 ? shared(name) : request(name)
        })
        const kinds = await Promise.all(asks.map((asked) => take(session, asked)))
        asks.forEach((asked, index) => {
          if (kinds[index] === 'granted') held.push({ session, asked })
        })
      }
      const names = [...new Set(held.map(({ asked }) => asked.name))].sort()
      expect(await shown()).toEqual(
        names.map(
          (name) =>
            `${name} ${held.filter(({ asked }) => asked.name === name).map(({ asked }) => asked.mode)}`,
        ),
      )
    }
  })

  test('more keys than a session keeps slots for: each is shown once, and tables do not grow', async () => {
    const { open, shown } = await setUp('keys')
    const session = await open()
    for (let turn = 0; turn < 300; turn++) {
      const asked = request(`n${turn % 150}`)
      expect(await take(session, asked)).toBe('granted')
      if (turn % 50 === 0) expect(await shown()).toEqual([`n${turn % 150} exclusive`])
      await free(session, asked)
    }
    const [row] = await rig.sql<{ n: number }>(
      "SELECT count(*)::int AS n FROM holdfast.advisory_holders WHERE namespace = 'keys'",
    )
    expect(row?.n).toBeLessThan(70)
  })

  test('a slot that is asked for with another key loses its old record, also when the answer is busy', async () => {
    const { open, shown } = await setUp('slots')
    const [ours, other] = [await open(), await open()]
    const busy = [request('busy 1'), request('busy 2')]
    for (const asked of busy) await take(other, asked)
    for (let index = 0; index < 64; index++) {
      const asked = request(`n${index}`)
      await take(ours, asked)
      await free(ours, asked)
    }
    // Each in a statement of its own, with the slots of n0 and n1.
    const asking = busy.map(async (_, index) => {
      await nextTurn(index)
      return take(ours, request(`busy ${index + 1}`))
    })
    expect(await Promise.all(asking)).toEqual(['busy', 'busy'])
    for (const name of ['n0', 'n1']) expect(await take(ours, request(name))).toBe('granted')
    expect(await shown()).toEqual(['busy 1 exclusive', 'busy 2 exclusive', 'n0 exclusive', 'n1 exclusive'])
  })

  test('T74 T78 an operator’s statements do nothing to a lock that was given back meanwhile', async () => {
    const { open } = await setUp('force')
    const [one, other] = [await open(), await open()]
    const [first, kept, next] = [request('x'), request('kept'), request('x')]
    await take(one, first)
    await take(one, kept)
    const [seen] = await rig.sql<{ conn: string; token: string }>(
      "SELECT conn::text, token::text FROM holdfast.advisory_holders WHERE namespace = 'force' AND name = 'x'",
    )
    await free(one, first)
    await take(other, next)
    const sql = statementsFor('holdfast')
    const [conns, tokens] = [`{${seen?.conn}}`, `{${seen?.token}}`]
    const [marked] = await rig.sql(sql.force.text, [conns, tokens, '9e15', 'test'])
    expect(Object.values(marked ?? {})).toEqual(['in time', '0'])
    await rig.sql(sql.end.text, [conns, '1000', tokens])
    for (const [session, asked] of [
      [one, kept],
      [other, next],
    ] as const)
      expect(await session.keepAlive({ held: [asked], waiting: [] }, call())).toMatchObject({
        kind: 'alive',
        lost: [],
      })
  })

  test('T11 a lock whose record cannot be overwritten is given up, and the session keeps the others', async () => {
    const { open, shown } = await setUp('broken')
    const [ours, other] = [await open(), await open()]
    const [first, kept] = [request('x'), request('kept')]
    await take(ours, first)
    await free(ours, first)
    await take(ours, kept)
    await rig.sql("ALTER TABLE holdfast.advisory_holders ADD CONSTRAINT broken CHECK (note <> 'y') NOT VALID")
    const failing = ours.tryAcquire({ ...request('x'), note: 'y' }, call())
    await expect(failing).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    await rig.sql('ALTER TABLE holdfast.advisory_holders DROP CONSTRAINT broken')
    expect(await shown()).toEqual(['kept exclusive'])
    expect(await take(other, request('x'))).toBe('granted')
    expect(await ours.keepAlive({ held: [kept], waiting: [] }, call())).toMatchObject({
      kind: 'alive',
      lost: [],
    })
  })

  test('a record that was deleted by hand is written anew', async () => {
    const { open, shown } = await setUp('deleted')
    const ours = await open()
    const first = request('x')
    await take(ours, first)
    await free(ours, first)
    await rig.sql("DELETE FROM holdfast.advisory_holders WHERE namespace = 'deleted'")
    expect(await take(ours, request('x'))).toBe('granted')
    expect(await shown()).toEqual(['x exclusive'])
  })
})
