/** Lists in pages, of names and of sessions. */
import assert from 'node:assert/strict'
import { publicIdOf } from '../../base/ids.ts'
import { compareNames } from '../../base/names.ts'
import type { Page, PageRequest } from '../../spi.ts'
import { call, topic } from './toolbox.ts'

/** All pages, each checked against its limit. */
async function pages<T>(limit: number, read: (page: PageRequest) => Promise<Page<T>>): Promise<T[][]> {
  const found: T[][] = []
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page: PageRequest = cursor === undefined ? { limit } : { limit, cursor }
    const { items, next } = await read(page)
    assert(items.length <= limit, `a page of at most ${limit} has ${items.length}`)
    assert(found.length < 1_000, 'the pages do not end')
    found.push([...items])
    cursor = next
  }
  return found
}

export const pagingCases = topic('paging', [
  {
    rule: 'C227',
    title: 'T82 a list comes in pages, each in byte order, and together they have every name',
    touches: 'client',
    async play(stage) {
      const [ada, { backend }] = await stage.two()
      const names = Array.from({ length: 23 }, (_, index) => `page/${index}`)
      for (const name of names) await ada.take(name)
      await ada.take('elsewhere')
      for (const limit of [1, 7, 23, 1_000]) {
        const found = await pages(limit, (page) => backend.list('page/', page, call()))
        for (const page of found) {
          const listed = page.map(({ name }) => name)
          assert.deepEqual(listed, listed.toSorted(compareNames))
        }
        const all = [...new Set(found.flat().map(({ name }) => name))]
        assert.deepEqual(all.toSorted(compareNames), names.toSorted(compareNames), `in pages of ${limit}`)
      }
    },
  },
  {
    rule: 'C228',
    title: 'names that come and go between two pages hide none of the others',
    async play(stage) {
      const [ada, { backend }] = await stage.two()
      const kept = ['b', 'd', 'f', 'h', 'j']
      for (const name of kept) await ada.take(name)
      const passing = await ada.take('a')
      let read = 0
      const found = await pages(2, async (page) => {
        const answer = await backend.list('', page, call())
        read++
        if (read === 1) await ada.release(passing)
        if (read === 2) await ada.take('aa')
        return answer
      })
      const seen = new Set(found.flat().map(({ name }) => name))
      for (const name of kept) assert(seen.has(name), `${name} is missing`)
    },
  },
  {
    rule: 'C229',
    title: 'sessions are listed in pages with label, TTL and time, by their public ids',
    touches: 'client',
    needs: ['sessions'],
    async play(stage) {
      const actors = [
        await stage.actor({ holder: 'ada' }),
        await stage.actor({ holder: 'bob', ttlMs: stage.ttlMs * 2 }),
        await stage.actor({ holder: 'eve' }),
      ]
      const [ada, bob] = actors
      assert(ada !== undefined && bob !== undefined)
      const { backend } = ada
      const listed = async () => {
        const found = await pages(
          2,
          (page) => backend.sessions?.(page, call()) ?? Promise.reject(new Error('none')),
        )
        return new Map(found.flat().map((session) => [session.id, session]))
      }
      const before = await listed()
      for (const { session, holder } of actors) {
        const shown = before.get(publicIdOf(session.id))
        assert.deepEqual([shown?.holder, shown?.ttlMs], [holder, session.ttlMs])
        // Missing where the engine cannot tell.
        const expiresInMs = shown?.expiresInMs ?? 1
        assert(expiresInMs > 0, `expires in ${expiresInMs} ms`)
        assert(
          expiresInMs <= session.ttlMs + backend.info.expirySlackMs(session.ttlMs),
          `expires in ${expiresInMs} ms, with a TTL of ${session.ttlMs} ms`,
        )
      }
      const told = JSON.stringify([...before.values()])
      for (const { session } of actors) assert(!told.includes(session.id), 'a session id is a secret')
      await bob.close()
      assert(!(await listed()).has(publicIdOf(bob.session.id)))
    },
  },
])
