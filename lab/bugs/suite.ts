/** Prints the cases of the conformance suite that the memory backend fails here. */
import { backendCases } from '../../packages/holdfast/src/testing/describe-backend.ts'
import { memoryExceptions, memoryWorld } from '../../packages/holdfast/test/conformance/memory-world.ts'
import type { FailedCase } from './catching.ts'

/** A bug may make a case hang. */
const TIMEOUT_MS = 1_000
const excepted = new Set(memoryExceptions.map(({ rule }) => rule))

const failures: FailedCase[] = []
for (const each of backendCases()) {
  if (excepted.has(each.rule)) continue
  const world = await memoryWorld()
  const tooLong = new Promise<never>((_, reject) =>
    setTimeout(() => reject(new Error('it hangs')), TIMEOUT_MS).unref(),
  )
  try {
    await Promise.race([each.run(world), tooLong])
  } catch (error) {
    const [message = ''] = String((error as Error).message).split('\n')
    failures.push({ rule: each.rule, title: each.title, message })
  }
  await Promise.race([world.close(), tooLong]).catch(() => {})
}
process.stdout.write(JSON.stringify(failures))
process.exit(0)
