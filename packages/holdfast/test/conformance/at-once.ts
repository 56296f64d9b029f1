/** Runs the cases of a suite side by side, because most of a case is waiting. Each still is a test of its own. */
type Test = (name: string, body: () => Promise<void>) => unknown

export function atOnce(test: Test, limit: number): Test {
  const waiting: (() => void)[] = []
  const bodies: (() => void)[] = []
  let running = 0
  const turn = async () => {
    if (running >= limit) await new Promise<void>((resolve) => waiting.push(resolve))
    running++
  }
  const end = () => {
    running--
    waiting.shift()?.()
  }
  return (name, body) => {
    const outcome = Promise.withResolvers<void>()
    outcome.promise.catch(() => {})
    bodies.push(() => {
      turn().then(body).finally(end).then(outcome.resolve, outcome.reject)
    })
    return test(name, () => {
      // The first that runs starts them all.
      for (const start of bodies.splice(0)) start()
      return outcome.promise
    })
  }
}
