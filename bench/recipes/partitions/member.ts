/** One member of partitions, in a process of its own. It tells its parent what it is assigned, and what it has asked for. */
import { openLocker } from 'holdfast'
import { partitions } from 'holdfast/recipes/partitions'

export interface Calls {
  readonly lists: number
  readonly tries: number
}

export type Report =
  | { readonly kind: 'ready' }
  | { readonly kind: 'assigned'; readonly partition: number }
  | { readonly kind: 'revoked'; readonly partition: number; readonly reason: string }
  | ({ readonly kind: 'calls' } & Calls)

export type Order = 'join' | 'calls' | 'leave'

const [url = '', count = '', ttlMs = ''] = process.argv.slice(2)
const tell = (report: Report) => process.send?.(report)
const locker = await openLocker(url, { ttlMs: Number(ttlMs) })
if (locker.fencing !== 'fenced') throw new Error('Partitions are measured with fencing tokens.')

const calls = { lists: 0, tries: 0 }
const counting = new Proxy(locker, {
  get: (target, key) => {
    if (key === 'list') calls.lists++
    if (key === 'tryAcquire') calls.tries++
    const value: unknown = Reflect.get(target, key)
    return typeof value === 'function' ? value.bind(target) : value
  },
})

let member: AsyncDisposable | undefined
process.on('message', async (order: Order) => {
  if (order === 'calls') tell({ kind: 'calls', ...calls })
  else if (order === 'join')
    member = await partitions(counting, {
      name: 'bench',
      count: Number(count),
      onAssigned: (partition) => void tell({ kind: 'assigned', partition }),
      onRevoked: (partition, reason) => void tell({ kind: 'revoked', partition, reason }),
    })
  else {
    await member?.[Symbol.asyncDispose]()
    await locker.close()
    process.disconnect()
  }
})
tell({ kind: 'ready' })
