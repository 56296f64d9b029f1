/**
 * Opening a connection of our own, which can be cancelled while it is in its handshake: a server that accepts and says
 * nothing would otherwise keep the connection, and with it the process, after everything else has been closed.
 */
export async function opened<T>(stop: AbortSignal, connect: () => Promise<T>, end: () => void): Promise<T> {
  stop.throwIfAborted()
  stop.addEventListener('abort', end, { once: true })
  try {
    const connection = await connect()
    stop.throwIfAborted()
    return connection
  } catch (error) {
    end()
    throw error
  } finally {
    stop.removeEventListener('abort', end)
  }
}

/** All of them, or none: if one cannot be opened, the others are closed. */
export async function allOpened<C extends { close(): void }>(
  opening: readonly Promise<C>[],
): Promise<readonly C[]> {
  const settled = await Promise.allSettled(opening)
  const failed = settled.find(({ status }) => status === 'rejected') as PromiseRejectedResult | undefined
  const all = settled.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []))
  if (failed === undefined) return all
  for (const each of all) each.close()
  throw failed.reason
}
