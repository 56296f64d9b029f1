/** A store on a server of the harness, with a bucket of the caller's own. */
import { reach } from 'holdfast-lab/servers'
import type { ObjectStore } from '../../src/guards/object.ts'
import { bucketOf, engineOfStore, type StoreName } from './stores.ts'

export interface OpenedStore {
  /** Address and bucket, for other processes. */
  readonly url: string
  readonly bucket: string
  readonly store: ObjectStore
  /** In a bucket or container that does not exist. */
  readonly elsewhere: ObjectStore
  close(): Promise<void>
}

let buckets = 0

export async function openStore(name: StoreName): Promise<OpenedStore> {
  const server = await reach(engineOfStore[name])
  const { url } = server
  const bucket = `holdfast-${process.pid}-${++buckets}`
  const { store, create } = bucketOf(name, url, bucket)
  await create()
  const elsewhere = bucketOf(name, url, 'missing').store
  return { url, bucket, store, elsewhere, close: () => server.stop() }
}
