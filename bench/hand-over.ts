/**
 * Hand-overs: many want one name all the time, so every release gives it to the next in line. Run by itself, this
 * file is one of several processes that do so together.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { type Locker, openLocker } from 'holdfast'
import { Rests } from './measure.ts'

export const waiters = 32
const warmUpSeconds = 0.05

export interface HandOverSample {
  readonly perSecond: number
  /** The share of them that went from one process to another. */
  readonly crossed: number
}

interface Orders {
  readonly url: string
  readonly waiters: number
  readonly seconds: number
}

export async function measureHandOver(
  url: string,
  processes: number,
  seconds: number,
): Promise<HandOverSample> {
  const orders = { url, waiters: waiters / processes, seconds }
  const tokens = processes === 1 ? [await handOver(orders)] : await inProcesses(processes, orders)
  const inOrder = tokens
    .flatMap((owned, process) => owned.map((token) => ({ token, process })))
    .sort((a, b) => a.token - b.token)
  const crossings = inOrder.filter((grant, index) => {
    const before = inOrder[index - 1]
    return before !== undefined && before.process !== grant.process
  })
  return { perSecond: inOrder.length / seconds, crossed: crossings.length / Math.max(1, inOrder.length - 1) }
}

/** The tokens of what was granted within the time. */
async function handOver({ url, waiters, seconds }: Orders): Promise<number[]> {
  const locker = await openLocker(url, { require: 'fenced' })
  const tokens: number[] = []
  try {
    await inTurns(locker, waiters, warmUpSeconds)
    for (const token of await inTurns(locker, waiters, seconds)) tokens.push(token)
  } finally {
    await locker.close()
  }
  return tokens
}

async function inTurns(locker: Locker<'fenced'>, waiters: number, seconds: number): Promise<number[]> {
  const tokens: number[] = []
  const endMs = performance.now() + seconds * 1_000
  const rests = new Rests()
  const waiter = async () => {
    do {
      const lease = await locker.acquire('bench/hand-over')
      // One at least, however late it is: a measurement without any says nothing.
      if (performance.now() < endMs || tokens.length === 0) tokens.push(Number(lease.fence.token))
      await lease.release()
      rests.begin(performance.now())
      await rests.due()
    } while (performance.now() < endMs)
  }
  await Promise.all(Array.from({ length: waiters }, waiter))
  return tokens
}

async function inProcesses(count: number, orders: Orders): Promise<number[][]> {
  const children = Array.from({ length: count }, () => fork(import.meta.filename, [JSON.stringify(orders)]))
  try {
    await Promise.all(children.map((child) => next(child)))
    for (const child of children) child.send('begin')
    return await Promise.all(children.map((child) => next(child) as Promise<number[]>))
  } finally {
    for (const child of children) child.kill('SIGKILL')
  }
}

async function next(child: ChildProcess): Promise<unknown> {
  const gone = new AbortController()
  const onExit = () => gone.abort(new Error('A process of the hand-over ended early.'))
  child.once('exit', onExit)
  try {
    const [message] = await once(child, 'message', { signal: gone.signal })
    return message
  } catch (error) {
    throw gone.signal.aborted ? gone.signal.reason : error
  } finally {
    child.off('exit', onExit)
  }
}

if (import.meta.main) {
  process.once('message', async () => {
    process.send?.(await handOver(JSON.parse(process.argv[2] ?? '{}') as Orders))
  })
  process.on('disconnect', () => process.exit())
  process.send?.('ready')
}
