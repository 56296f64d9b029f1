/** An object store in a `Map`, as users may write one: for tests that need no server and no faults. */
import type { ObjectStore } from '../../src/guards/object.ts'

export function mapStore(): ObjectStore & { readonly objects: ReadonlyMap<string, string> } {
  const objects = new Map<string, string>()
  const etagOf = (body: string | undefined) => (body === undefined ? undefined : `etag ${body}`)
  return {
    objects,
    async get(key) {
      const body = objects.get(key)
      return body === undefined ? null : { body: new TextEncoder().encode(body), etag: `etag ${body}` }
    },
    async put(key, body, { ifMatch, ifNoneMatch } = {}) {
      const now = etagOf(objects.get(key))
      if ((ifNoneMatch !== undefined && now !== undefined) || (ifMatch !== undefined && now !== ifMatch))
        return null
      objects.set(key, String(body))
      return `etag ${String(body)}`
    },
    async delete(key) {
      objects.delete(key)
    },
    async *list(prefix) {
      yield* [...objects.keys()].filter((key) => key.startsWith(prefix))
    },
  }
}
