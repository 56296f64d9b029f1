/** One replica of a service that writes a report into a bucket every night. It tells what became of each night. */
import { readSync } from 'node:fs'
import { S3 } from '@aws-sdk/client-s3'
import { createLocker, type FencedLease, isHoldfastError } from 'holdfast'
import { objectGuard, s3Store } from 'holdfast/guards/object'
import { sqlite } from 'holdfast/sqlite'

export interface Order {
  readonly night: string
  readonly way: 'lease' | 'lease and guard'
}
export type Told =
  | { readonly kind: 'ready' }
  | { readonly kind: 'about-to-write' }
  | { readonly kind: 'ended'; readonly outcome: 'wrote' | 'found it done' | 'refused' }

export const BUCKET = 'reports'

export function s3At(url: string): S3 {
  const { host, username, password } = new URL(url)
  const credentials = { accessKeyId: username, secretAccessKey: password }
  return new S3({ endpoint: `http://${host}`, region: 'us-east-1', forcePathStyle: true, credentials })
}

function serve(name: string, locks: string, url: string): void {
  const s3 = s3At(url)
  // A service would leave the TTL at 15 s. Here the reader waits until the frozen replica is given up.
  const locker = createLocker(sqlite({ path: locks }), { ttlMs: 2_000, holder: name })
  const guard = objectGuard({ store: s3Store(s3, BUCKET), key: (lease) => `${lease}.txt` })

  /** How many services do it: only the holder of the lease comes here, so it is safe, is it not? */
  const write = async (night: string) => {
    const { Contents = [] } = await s3.listObjectsV2({ Bucket: BUCKET, Prefix: `plain/${night}` })
    if (Contents.length > 0) return 'found it done'
    holdBreath()
    await s3.putObject({ Bucket: BUCKET, Key: `plain/${night}.txt`, Body: `by ${name}` })
    return 'wrote'
  }

  /** The fence makes the bucket refuse a replica that was frozen and overtaken. */
  const writeGuarded = async (lease: FencedLease) => {
    if ((await guard.get(lease)) !== null) return 'found it done'
    holdBreath()
    // `guard.put(lease, …)` would also ask the lease, which knows by its own clock that it is late. The bare fence leaves it to
    // the bucket, as if the freeze came after that last look at the clock.
    await guard.put(lease.fence, `by ${name}`, { contentType: 'text/plain' })
    return 'wrote'
  }

  process.on('message', async ({ night, way }: Order) => {
    const work = locker.withLease(`report/${night}`, { waitMs: 60_000 }, async (lease) => {
      const outcome = way === 'lease' ? await write(night) : await writeGuarded(lease)
      tell({ kind: 'ended', outcome })
    })
    await work.catch((error: unknown) => {
      const refusal = isHoldfastError(error, 'LEASE_LOST') ? error.cause : error
      if (isHoldfastError(refusal, 'FENCE_STALE')) tell({ kind: 'ended', outcome: 'refused' })
      // A lease that was lost after its work had been told is no news.
      else if (!isHoldfastError(error, 'LEASE_LOST')) throw error
    })
  })
  tell({ kind: 'ready' })
}

/** Blocks the event loop until the parent writes a byte: so a SIGSTOP comes just before the write, and not during it. */
function holdBreath(): void {
  tell({ kind: 'about-to-write' })
  if (readSync(0, new Uint8Array(1)) !== 1) process.exit()
}

function tell(told: Told): void {
  process.send?.(told)
}

const [name = '', locks = '', url = ''] = process.argv.slice(2)
if (process.send !== undefined) serve(name, locks, url)
