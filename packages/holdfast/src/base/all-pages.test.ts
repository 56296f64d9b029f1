import assert from 'node:assert/strict'
import { test } from 'vitest'
import type { PageRequest } from '../spi.ts'
import { allPages } from './all-pages.ts'
import { defaults } from './defaults.ts'

async function read(pages: readonly (readonly string[])[], limit?: number) {
  const asked: PageRequest[] = []
  const found: (readonly string[])[] = []
  const page = (request: PageRequest) => {
    asked.push(request)
    const index = Number(request.cursor ?? 0)
    return { items: pages[index] ?? [], next: index + 1 < pages.length ? String(index + 1) : null }
  }
  for await (const items of allPages(page, limit)) found.push(items)
  return { asked, found }
}

test('pages are read one after the other until there is no next one, also when one is empty', async () => {
  const { asked, found } = await read([['a'], [], ['b', 'c']], 2)
  assert.deepEqual(found, [['a'], [], ['b', 'c']])
  assert.deepEqual(asked, [{ limit: 2 }, { limit: 2, cursor: '1' }, { limit: 2, cursor: '2' }])
})

test('a page has the usual size if none is given', async () => {
  const { asked } = await read([[]])
  assert.deepEqual(asked, [{ limit: defaults.pageItems }])
})
