import type { Page, PageRequest } from '../spi.ts'
import { defaults } from './defaults.ts'

/** Reads page after page until there is no next one. */
export async function* allPages<T>(
  read: (page: PageRequest) => Page<T> | Promise<Page<T>>,
  limit: number = defaults.pageItems,
): AsyncGenerator<readonly T[]> {
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const { items, next } = await read({ limit, ...(cursor !== undefined && { cursor }) })
    yield items
    cursor = next
  }
}
