/** `memory:` is an engine of its own, `memory:name` one that is shared in the process. */
import type { LockerUrl } from '../../kit/url.ts'
import type { Backend } from '../../spi.ts'
import { memory, sharedMemoryEngine } from './index.ts'

export async function openFromUrl(url: LockerUrl): Promise<Backend<'fenced'>> {
  const options = url.options({})
  const name = url.withoutHost()
  return memory(name === '' ? options : { ...options, engine: sharedMemoryEngine(name) })
}
