/**
 * One client process's way to the engine. A request leaves once; its caller is answered, or told that nobody knows.
 * Batches share one connection through core's coalescer: what gets lost there breaks the connection, which the
 * client notices after a while.
 */
import { Coalescer, type Settled } from '../../packages/holdfast/src/core/coalescer.ts'
import { BackendUnavailableError, ClosedError } from '../../packages/holdfast/src/core/errors.ts'
import type { Call } from '../../packages/holdfast/src/spi.ts'
import {
  describeAnswer,
  describeRequest,
  type EngineAnswer,
  type EnginePush,
  type EngineRequest,
} from './engine/messages.ts'
import type { SimProcess } from './machine.ts'
import type { World } from './world.ts'

const RESET_AFTER_MS = 400
const MAX_BATCH = 16

interface Outgoing {
  readonly request: EngineRequest
  hasLeft: boolean
}

export class SimConnection {
  readonly address: string
  readonly process: SimProcess
  readonly world: World
  readonly #client: number
  readonly #batches: Coalescer<Outgoing, EngineAnswer> | null
  /** Attempts that wait for their turn, and those who wait for a name to become free. */
  readonly turns = new Map<string, (push: EnginePush) => void>()
  readonly hints = new Map<string, Set<() => void>>()
  #closed = false

  constructor(world: World, client: number, process: SimProcess, address: string) {
    this.world = world
    this.#client = client
    this.process = process
    this.address = address
    this.#batches =
      world.settings.transport === 'batches'
        ? new Coalescer((items) => this.#sendBatch(items), { maxBatch: MAX_BATCH })
        : null
  }

  close(): void {
    this.#closed = true
  }

  /** `isPatient`: an answer counts although its caller has gone. */
  ask(request: EngineRequest, call: Call, isPatient = false): Promise<EngineAnswer> {
    if (this.#closed) return Promise.reject(new ClosedError('The simulated backend'))
    if (call.signal.aborted)
      return Promise.reject(this.unavailable('called off before it was sent', 'not-applied'))
    const outgoing: Outgoing = { request, hasLeft: false }
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        const error = this.unavailable('called off', outgoing.hasLeft ? 'unknown' : 'not-applied')
        if (!outgoing.hasLeft) this.#batches?.withdraw((item) => item === outgoing, error)
        if (!isPatient) reject(error)
      }
      call.signal.addEventListener('abort', onAbort, { once: true })
      if (this.#batches === null) {
        outgoing.hasLeft = true
        this.#transmit([request], ([answer]) => answer && resolve(answer), undefined)
      } else this.#batches.add(outgoing).then(resolve, reject)
    })
  }

  unavailable(what: string, outcome: 'not-applied' | 'unknown'): BackendUnavailableError {
    return new BackendUnavailableError('sim', what, outcome)
  }

  receivePush(push: EnginePush): void {
    const { world, address } = this
    world.note(address, 'push', push.kind === 'turn' ? `turn ${push.grant.attempt.slice(0, 8)}` : push.kind)
    if (push.kind === 'free') {
      const listeners = this.hints.get(push.name)
      this.hints.delete(push.name)
      for (const listener of listeners ?? []) listener()
      return
    }
    const attempt = push.kind === 'turn' ? push.grant.attempt : push.attempt
    this.turns.get(attempt)?.(push)
  }

  #sendBatch(items: readonly Outgoing[]): Promise<readonly Settled<EngineAnswer>[]> {
    for (const item of items) item.hasLeft = true
    if (items.length > 1) this.world.count('batch of several')
    return new Promise((resolve, reject) => {
      const fail = () => reject(this.unavailable('the connection broke', 'unknown'))
      this.#transmit(
        items.map((item) => item.request),
        (answers) => resolve(answers.map((answer) => ({ ok: true, answer }))),
        () => void this.process.setTimer(RESET_AFTER_MS, fail),
      )
    })
  }

  #transmit(
    requests: readonly EngineRequest[],
    onAnswers: (answers: readonly EngineAnswer[]) => void,
    onLost: (() => void) | undefined,
  ): void {
    const { world, address, process } = this
    const lost = () => process.deliver(() => onLost?.())
    const route = { client: this.#client, server: 'engine' as const, onLost: lost }
    const arrive = (answers: readonly EngineAnswer[]) => {
      for (const answer of answers) world.note(address, '←', describeAnswer(answer))
      onAnswers(answers)
    }
    const reply = (answers: readonly EngineAnswer[]) =>
      world.network.send({ ...route, direction: 'in', deliver: () => process.deliver(() => arrive(answers)) })
    const land = () => {
      for (const request of requests) world.noteLanding(address, request)
      world.engine.handle(requests, address, reply, lost)
    }
    for (const request of requests) world.count(`request ${request.kind}`)
    // A process that stands still sends nothing, even if a check has just looked at its leases.
    process.deliver(() => {
      for (const request of requests) world.note(address, '→', describeRequest(request))
      world.network.send({ ...route, direction: 'out', deliver: () => world.engine.receive(land, lost) })
    })
  }
}
