/** Takes a lease by a URL, and then has nothing more to do. */
import { open } from './opened.ts'

const locker = await open(process.argv[2] ?? '', undefined)
const lease = await locker.acquire('held')
console.log(lease.state)
