/** Watches, with nothing else that would keep the process alive. */
import { openClient } from './backends.ts'

const locker = openClient()
const lease = await locker.acquire('watched')
setTimeout(() => void lease.release(), 300).unref()
for await (const event of locker.watch()) {
  console.log(event.kind)
  if (event.kind === 'released') break
}
