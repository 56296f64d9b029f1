/** Opens a file, as another user of the system if told so, takes a lock in it, and says what became of it. */

import { isHoldfastError } from '../../../src/base/errors.ts'
import { openSqlite } from '../../../src/engines/sqlite/locks/assemble.ts'
import { createLocker } from '../../../src/locker/locker.ts'

const [path = '', name = '', user = ''] = process.argv.slice(2)

if (user !== '') process.setuid?.(Number(user))
try {
  const locker = createLocker(openSqlite({ path }))
  const lease = await locker.acquire(name)
  console.log(`token ${lease.fence.token} of ${lease.fence.issuer}`)
  await lease.release()
  await locker.close()
} catch (error) {
  console.log(isHoldfastError(error) ? `${error.code} ${error.message}` : String(error))
}
