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
