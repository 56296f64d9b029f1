/**
 * A network between clients and servers: the lab's proxy, which delays what passes. It runs in a process of its own, because
 * in the clients' process it would take their time. Run by itself, this file is that process.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { startProxy } from 'holdfast-lab/faults'
import { median } from './measure.ts'

interface Address {
  readonly host: string
  readonly port: number
}

export interface Network {
  /** One sentence for the report. */
  readonly words: string
  readonly pid: number
  /** The address of the same server, over this network. */
  through(url: string): string
  stop(): void
}

const probes = 31

export async function startNetwork(urls: readonly string[], rttMs: number): Promise<Network> {
  const child = fork(import.meta.filename, [JSON.stringify({ servers: urls.map(addressOf), rttMs })])
  const kill = () => child.kill('SIGKILL')
  process.prependListener('exit', kill)
  const stop = () => {
    process.off('exit', kill)
    kill()
  }
  try {
    const gone = new AbortController()
    child.once('exit', () => gone.abort(new Error('The process of the proxies ended early.')))
    const [proxies] = (await once(child, 'message', { signal: gone.signal })) as [Address[]]
    const echo = proxies[urls.length] as Address
    const measured = (await roundTripMs(echo)).toFixed(1)
    return {
      words: `Between client and server is a proxy with a round trip of ${rttMs} ms, measured ${measured} ms, for every library alike`,
      pid: child.pid ?? 0,
      through(url) {
        const { port } = addressOf(url)
        const index = urls.findIndex((each) => addressOf(each).port === port)
        const through = new URL(url)
        through.port = String(proxies[index]?.port)
        return through.href
      },
      stop,
    }
  } catch (error) {
    stop()
    throw error
  }
}

function addressOf(url: string): Address {
  const { hostname, port } = new URL(url)
  return { host: hostname, port: Number(port) }
}

async function roundTripMs(echo: Address): Promise<number> {
  const socket = connect({ ...echo, noDelay: true })
  const timesMs: number[] = []
  for (let probe = 0; probe < probes; probe++) {
    const beganMs = performance.now()
    socket.write('?')
    await once(socket, 'data')
    timesMs.push(performance.now() - beganMs)
  }
  socket.destroy()
  return median(timesMs)
}

if (import.meta.main) {
  process.on('disconnect', () => process.exit())
  const orders = JSON.parse(process.argv[2] ?? '{}') as { servers: Address[]; rttMs: number }
  const echo = createServer({ noDelay: true }, (socket) => socket.on('error', () => {}).pipe(socket))
  await once(echo.listen(0, '127.0.0.1'), 'listening')
  const { port } = echo.address() as { port: number }
  const proxies = await Promise.all(
    [...orders.servers, { host: '127.0.0.1', port }].map(async (server) => {
      const proxy = await startProxy(server)
      // All of it on the way back: a client cannot tell, and each delay adds a timer's inaccuracy.
      proxy.delay(orders.rttMs, 'down')
      return { host: proxy.host, port: proxy.port }
    }),
  )
  process.send?.(proxies)
}
