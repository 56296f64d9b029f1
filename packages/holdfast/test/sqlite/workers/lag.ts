/** By how much timers of this process came late at most: what the machine, and not the code, is to blame for. */
const STEP_MS = 10

export function measureLag(): { stop(): number } {
  let longestMs = 0
  let lastMs = performance.now()
  const timer = setInterval(() => {
    const nowMs = performance.now()
    longestMs = Math.max(longestMs, nowMs - lastMs - STEP_MS)
    lastMs = nowMs
  }, STEP_MS)
  timer.unref()
  return {
    stop() {
      clearInterval(timer)
      return Math.max(longestMs, performance.now() - lastMs - STEP_MS)
    },
  }
}
