/** Takes one from the value of the service, under a lease. */
import { formatFence } from 'holdfast'
import { writeUnderLease } from '../support/late-writer.ts'

const [locks = '', url = ''] = process.argv.slice(2)

await writeUnderLease(locks, 'value', async (fence, pause) => {
  const headers = { 'holdfast-fence': formatFence(fence) }
  const value = Number(await (await fetch(url, { headers })).text())
  pause()
  const { status } = await fetch(url, { method: 'PUT', headers, body: String(value - 1) })
  return String(status)
})
