import { type Server, startPostgres, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { call, exclusive, openSession, Stage, take } from '../../../../test/postgres/stage.ts'
import { listAll } from '../../../kit/backend-kit.ts'
import { createLocker } from '../../../locker/locker.ts'
import type { PageRequest } from '../../../spi.ts'
import type { PostgresBackend } from './backend.ts'

describe.runIf(wanted('postgres'))('lists on postgres', () => {
  let server: Server
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server?.stop())

  test('T82 a list of 50,000 names comes in pages, in order', async () => {
    await using stage = new Stage(server.url)
    const backend = await stage.backend({ schema: 'many' })
    await openSession(backend, 600_000)
    const operator = await stage.operator()
    await operator.query(`
      INSERT INTO many.holders SELECT 'default', 'n/' || i, 'attempt/' || i, no, i, 'exclusive', 1, 1, 0, now()
      FROM many.sessions, generate_series(1, 50000) AS i`)
    const locker = createLocker(backend)
    const listed = await locker.list('n/')
    const expected = Array.from({ length: 50_000 }, (_, index) => `n/${index + 1}`).sort()
    expect(listed.map(({ name }) => name)).toEqual(expected)
    await locker.close()
  })

  test('pages are complete where one table has more rows of a name than a page has names', async () => {
    await using stage = new Stage(server.url)
    const backend = await stage.backend({ schema: 'crowded' })
    const session = await openSession(backend)
    const permit = (name: string) => exclusive(name, { mode: 'permits', weight: 1, capacity: 10 })
    for (const name of ['a', 'b', 'c']) {
      for (let count = 0; count < 5; count++) await take(session, permit(name))
      const held = exclusive(`${name}/data`)
      await take(session, held)
      await session.setData(held, 'kept', call())
      await session.release(held, { keepForMs: 0 }, call())
    }
    // From here on, only one table has rows.
    for (const name of ['d', 'e']) for (let count = 0; count < 5; count++) await take(session, permit(name))
    const all = await listAll(backend, '', call())
    expect(all.map(({ name, holders }) => [name, holders.length])).toEqual([
      ['a', 5],
      ['a/data', 0],
      ['b', 5],
      ['b/data', 0],
      ['c', 5],
      ['c/data', 0],
      ['d', 5],
      ['e', 5],
    ])
    for (const limit of [1, 2, 3, 6])
      expect(await namesInPagesOf(backend, limit)).toEqual(all.map(({ name }) => name))
  })

  test('names of which only expired claims are left do not end a list early', async () => {
    await using stage = new Stage(server.url)
    const backend = await stage.backend({ schema: 'expired' })
    const [mine, other] = [await openSession(backend), await openSession(backend)]
    for (const name of ['a', 'b', 'c', 'd']) await take(other, exclusive(name))
    await take(mine, exclusive('e'))
    const operator = await stage.operator()
    await operator.query("UPDATE expired.sessions SET expires_at = now() - interval '1 s' WHERE id = $1", [
      other.id,
    ])
    expect(await namesInPagesOf(backend, 2)).toEqual(['e'])
  })

  test('a page of one session is followed by the next session', async () => {
    await using stage = new Stage(server.url)
    const backend = await stage.backend({ schema: 'one_by_one' })
    const opened = [await openSession(backend), await openSession(backend), await openSession(backend)]
    const ids = opened.map(({ id }) => id.slice(0, 22)).sort()
    const listed: string[] = []
    let page: PageRequest | undefined = { limit: 1 }
    while (page !== undefined && listed.length <= ids.length) {
      const { items, next } = await backend.sessions(page, call())
      listed.push(...items.map(({ id }) => id))
      page = next === null ? undefined : { limit: 1, cursor: next }
    }
    expect(listed).toEqual(ids)
  })

  test('a cursor of the list of sessions holds no secret', async () => {
    await using stage = new Stage(server.url)
    const backend = await stage.backend({ schema: 'labelled' })
    const sessions = [await openSession(backend), await openSession(backend)]
    const { next } = await backend.sessions({ limit: 1 }, call())
    expect(sessions.map(({ id }) => id.slice(0, 22))).toContain(next)
  })
})

async function namesInPagesOf(backend: PostgresBackend, limit: number): Promise<string[]> {
  const names: string[] = []
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page: PageRequest = cursor === undefined ? { limit } : { limit, cursor }
    const { items, next } = await backend.list('', page, call())
    expect(items.length).toBeLessThanOrEqual(limit)
    names.push(...items.map(({ name }) => name))
    cursor = next
  }
  return names
}
