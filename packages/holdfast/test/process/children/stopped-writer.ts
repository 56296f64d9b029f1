/**
 * Writes an object. Between the data and the head it waits for the file `gate`, so that it can be stopped there: whoever makes the
 * file while it is stopped decides what it meets when it goes on.
 */
import { existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { isHoldfastError } from '../../../src/base/errors.ts'
import { makeFence } from '../../../src/base/fence.ts'
import { type ObjectStore, objectGuard } from '../../../src/guards/object.ts'
import { bucketOf, type StoreName } from '../../object/stores.ts'

const [name = '', url = '', bucket = '', gate = ''] = process.argv.slice(2)
const { store } = bucketOf(name as StoreName, url, bucket)
const stopping: ObjectStore = {
  ...store,
  async put(key, ...given) {
    if (key.endsWith('.head') && !existsSync(gate)) {
      console.log('waiting')
      while (!existsSync(gate)) await sleep(5)
    }
    return store.put(key, ...given)
  },
}
const fence = makeFence({ issuer: 'i', name: 'n', mode: 'exclusive', token: 1n, grant: 'g1' })
try {
  await objectGuard({ store: stopping }).put(fence, 'late')
  console.log('written')
} catch (error) {
  console.log(isHoldfastError(error) ? error.code : String(error))
}
