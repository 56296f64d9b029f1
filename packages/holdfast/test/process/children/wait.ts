/** Waits for a name that is taken, with nothing else that would keep the process alive. */
import { openClient } from './backends.ts'

const waitMs = Number(process.argv[3])
const releaseAfterMs = Number(process.argv[4])
const lease = await openClient().acquire('taken')
setTimeout(() => void lease.release(), releaseAfterMs).unref()
try {
  const mine = await openClient().acquire('taken', { waitMs })
  console.log('granted', mine.state)
} catch (error) {
  console.log((error as { code?: string }).code)
}
