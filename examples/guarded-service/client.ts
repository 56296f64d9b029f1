/** Sells one unit under a lease: reads the stock, and writes what is left. */
import { formatFence } from 'holdfast'
import { writeUnderLease } from '../support/late-writer.ts'

const [locks = '', url = '', secret = ''] = process.argv.slice(2)
const key = { id: 'example', secret: Buffer.from(secret, 'base64') }

await writeUnderLease(locks, 'sku:42', async (fence, pause) => {
  // `fencedFetch(lease, { signWith: key })` does this, and would also look at the lease.
  const headers = { 'holdfast-fence': formatFence(fence, { signWith: key }) }
  const units = Number(await (await fetch(url, { headers })).text())
  pause()
  const { status } = await fetch(url, { method: 'PUT', headers, body: String(units - 1) })
  return String(status)
})
