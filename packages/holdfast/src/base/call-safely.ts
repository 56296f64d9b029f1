/**
 * Calls what must not stop those that are called after it. Its error is not hidden: it is raised as an uncaught exception
 * of the process, as Node does with the error of a timer or of an event's listener.
 */
export function callSafely(callback: () => void): void {
  try {
    callback()
  } catch (error) {
    queueMicrotask(() => {
      throw error
    })
  }
}
