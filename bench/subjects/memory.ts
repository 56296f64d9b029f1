import { createLocker } from 'holdfast'
import { memory } from 'holdfast/memory'
import type { Contender, Subject } from '../subject.ts'

const map: Contender = {
  name: 'raw',
  async open() {
    const owners = new Map<string, string>()
    const acquire = async (name: string, owner: string) => {
      if (owners.has(name)) return false
      owners.set(name, owner)
      return true
    }
    const release = async (name: string, owner: string) => owners.get(name) === owner && owners.delete(name)
    return {
      async pair(name) {
        if (!(await acquire(name, 'me')) || !(await release(name, 'me'))) throw new Error(`${name} was taken`)
      },
      async close() {},
    }
  },
}

const holdfast: Contender = {
  name: 'holdfast',
  async open() {
    const locker = createLocker(memory())
    return {
      async pair(name) {
        const lease = await locker.acquire(name)
        await lease.release()
      },
      close: () => locker.close(),
    }
  },
}

export const subject = (): Subject => ({
  raw: 'a Map, set and deleted behind promises: no expiry, no tokens, no waiting',
  comparisons: [{ setting: 'in this process', contenders: [map, holdfast] }],
  handOver: { url: () => 'memory:', processes: [1] },
})
