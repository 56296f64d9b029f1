/** Runs the cases of a suite side by side, because most of a case is waiting. Each still is a test of its own. */
type Test = (name: string, body: () => Promise<void>) => unknown

/** The first that runs starts all that are in `starters`, which several suites may share. */
export function atOnce(test: Test, limit: number, starters: (() => void)[] = []): Test {
  const waiting: (() => void)[] = []
  let running = 0
  const turn = async () => {
    if (running >= limit) await new Promise<void>((resolve) => waiting.push(resolve))
    else running++
  }
  const end = () => {
    const next = waiting.shift()
    if (next === undefined) running--
    else next()
  }
  return (name, body) => {
    const outcome = Promise.withResolvers<void>()
    outcome.promise.catch(() => {})
    starters.push(() => {
      turn().then(body).finally(end).then(outcome.resolve, outcome.reject)
    })
    return test(name, () => {
      for (const start of starters.splice(0)) start()
      return outcome.promise
    })
  }
}
