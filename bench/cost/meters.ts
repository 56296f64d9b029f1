/** Meters of the client: what pairs have cost this process. */
import { Socket } from 'node:net'
import { GCProfiler, getHeapStatistics } from 'node:v8'
import { Rests } from '../measure.ts'
import type { Running } from '../subject.ts'

/** The client's cost of so many pairs. */
export interface ClientCost {
  readonly pairs: number
  readonly userUs: number
  readonly systemUs: number
  readonly sentBytes: number
  readonly receivedBytes: number
  readonly allocatedBytes: number
}

/** Looking at the clock costs as much as some raw pairs do. */
const pairsPerLook = 16

export async function measureClient(running: Running, atOnce: number, seconds: number): Promise<ClientCost> {
  const stopAllocations = startAllocations()
  const traffic = socketTraffic()
  const cpu = process.cpuUsage()
  const pairs = await runPairs(running, atOnce, seconds)
  const { user, system } = process.cpuUsage(cpu)
  const { sentBytes, receivedBytes } = socketTraffic()
  return {
    pairs,
    userUs: user,
    systemUs: system,
    sentBytes: sentBytes - traffic.sentBytes,
    receivedBytes: receivedBytes - traffic.receivedBytes,
    allocatedBytes: stopAllocations(),
  }
}

export async function runPairs(running: Running, atOnce: number, seconds: number): Promise<number> {
  const endMs = performance.now() + seconds * 1_000
  const rests = new Rests()
  let pairs = 0
  const loop = async (worker: number) => {
    for (let nowMs = 0; nowMs < endMs; nowMs = performance.now()) {
      rests.begin(nowMs)
      for (let turn = 0; turn < pairsPerLook; turn++) {
        await running.pair(`bench/${worker}`)
        pairs++
        const rest = rests.due()
        if (rest !== undefined) await rest
      }
    }
  }
  await Promise.all(Array.from({ length: atOnce }, (_, worker) => loop(worker)))
  return pairs
}

const sockets = new Set<Socket>()

/** Must run before the first connection: sockets are counted from when they connect, whoever makes them. */
export function countSockets(): void {
  const { connect } = Socket.prototype
  Socket.prototype.connect = function (this: Socket, ...args: unknown[]): Socket {
    sockets.add(this)
    return Reflect.apply(connect, this, args)
  }
}

function socketTraffic(): { sentBytes: number; receivedBytes: number } {
  const all = [...sockets]
  return {
    sentBytes: all.reduce((sum, { bytesWritten }) => sum + bytesWritten, 0),
    receivedBytes: all.reduce((sum, { bytesRead }) => sum + bytesRead, 0),
  }
}

/** The stop function answers with the bytes that were allocated on the heap: its growth, and what was collected meanwhile. */
function startAllocations(): () => number {
  const collections = new GCProfiler()
  collections.start()
  const atStart = getHeapStatistics().used_heap_size
  return () => {
    const atEnd = getHeapStatistics().used_heap_size
    return allocatedBytes(atStart, atEnd, collections.stop()?.statistics ?? [])
  }
}

interface Collection {
  readonly beforeGC: { readonly heapStatistics: { readonly usedHeapSize: number } }
  readonly afterGC: { readonly heapStatistics: { readonly usedHeapSize: number } }
}

export function allocatedBytes(atStart: number, atEnd: number, collections: readonly Collection[]): number {
  const collected = collections.reduce(
    (sum, { beforeGC, afterGC }) =>
      sum + beforeGC.heapStatistics.usedHeapSize - afterGC.heapStatistics.usedHeapSize,
    0,
  )
  return atEnd - atStart + collected
}
