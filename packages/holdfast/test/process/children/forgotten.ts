/** Opens a locker, uses it, and never closes it. */
import { open } from './opened.ts'

const [, , url = '', library, name = 'x'] = process.argv
const locker = await open(url, library === '' ? undefined : library)
console.log('opened')
const lease = await locker.acquire(name)
console.log(await lease.release())
