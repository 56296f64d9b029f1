/**
 * One client process's way to the engine. A request leaves once; its caller is answered, or told that the outcome is unknown.
 * Batches share one connection through the kit's lane: what gets lost there breaks the connection, which the
 * client notices after a while.
 */

import { BackendUnavailableError, ClosedError } from '../../packages/holdfast/src/base/errors.ts'
import { neverCancelled } from '../../packages/holdfast/src/kit/backend-kit.ts'
import { type Asker, Lane } from '../../packages/holdfast/src/kit/lane.ts'
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
const REFUSED_FOR_MS = 50
const MAX_BATCH = 16

export class SimConnection {
  readonly address: string
  readonly process: SimProcess
  readonly world: World
  readonly #client: number
  readonly #lane: Lane<EngineRequest, EngineAnswer> | null
  /** Attempts that wait in the queue, and callers that wait for a name to become free. */
  readonly turns = new Map<string, (push: EnginePush) => void>()
  #sent = 0
  #closed = false
  /** Until then it fails without trying, as clients do that pause before they connect again. */
  #refusedUntilMs = 0

  constructor(world: World, client: number, process: SimProcess, address: string) {
    this.world = world
    this.#client = client
    this.process = process
    this.address = address
    this.#lane =
      world.settings.transport === 'batches'
        ? new Lane({
            backend: 'sim',
            clock: process,
            maxBatch: MAX_BATCH,
            maxInFlight: world.settings.batchesInFlight,
            send: (requests) => this.#sendBatch(requests),
          })
        : null
  }

  close(): void {
    this.#closed = true
    this.#lane?.close()
  }

  /** `isPatient`: an answer counts although its caller has gone. */
  ask(request: EngineRequest, call: Call, isPatient = false): Promise<EngineAnswer> {
    return new Promise((answered, failed) => this.add(request, call, { answered, failed }, isPatient))
  }

  /** Without a promise: the first that `asker` is told counts. It may be told before this returns. */
  add(request: EngineRequest, call: Call, asker: Asker<EngineAnswer>, isPatient = false): void {
    if (this.#closed) asker.failed(new ClosedError('The simulated backend'))
    else if (call.cancelled) asker.failed(this.unavailable('cancelled before it was sent', 'not-applied'))
    else if (this.#refusedUntilMs > this.world.nowMs) asker.failed(this.#refused())
    else if (this.#lane !== null) this.#lane.add(request, isPatient ? neverCancelled : call, asker)
    else {
      if (!isPatient) call.onCancel(() => asker.failed(this.unavailable('cancelled', 'unknown')))
      const onAnswers = ([answer]: readonly EngineAnswer[]) => answer && asker.answered(answer)
      this.#transmit([request], { onAnswers, onRefused: asker.failed })
    }
  }

  /** How many requests have been sent since the last question. */
  takeSent(): number {
    const sent = this.#sent
    this.#sent = 0
    return sent
  }

  unavailable(what: string, outcome: 'not-applied' | 'unknown'): BackendUnavailableError {
    return new BackendUnavailableError('sim', what, outcome)
  }

  #refused(): BackendUnavailableError {
    return this.unavailable('connection refused', 'not-applied')
  }

  receivePush(push: EnginePush): void {
    const { world, address } = this
    world.note(address, 'push', push.kind === 'turn' ? `turn ${push.grant.attempt.slice(0, 8)}` : push.kind)
    const attempt = push.kind === 'turn' ? push.grant.attempt : push.attempt
    this.turns.get(attempt)?.(push)
  }

  #sendBatch(requests: readonly EngineRequest[]): Promise<readonly EngineAnswer[]> {
    if (requests.length > 1) this.world.count('batch of several')
    return new Promise((resolve, reject) => {
      const fail = () => reject(this.unavailable('the connection broke', 'unknown'))
      this.#transmit(requests, {
        onAnswers: resolve,
        onRefused: reject,
        onLost: () => void this.process.setTimer(RESET_AFTER_MS, fail),
      })
    })
  }

  #transmit(requests: readonly EngineRequest[], heard: Heard): void {
    const { world, address, process } = this
    const lost = () => process.deliver(() => heard.onLost?.())
    const route = { client: this.#client, server: 'engine' as const, onLost: lost }
    const arrive = (answers: readonly EngineAnswer[]) => {
      for (const answer of answers) world.note(address, '←', describeAnswer(answer))
      heard.onAnswers(answers)
    }
    const reply = (answers: readonly EngineAnswer[]) =>
      world.network.send({ ...route, direction: 'in', deliver: () => process.deliver(() => arrive(answers)) })
    const land = () => {
      for (const request of requests) world.noteLanding(address, request)
      world.engine.handle(requests, address, reply, lost)
    }
    const refused = () => {
      world.note(address, '←', 'connection refused')
      if (world.settings.pausesWhenRefused) this.#refusedUntilMs = world.nowMs + REFUSED_FOR_MS
      heard.onRefused(this.#refused())
    }
    // A copy of what was refused never lands, and a copy of what has landed is not refused.
    let fate: 'on its way' | 'landed' | 'refused' = 'on its way'
    const knock = () => {
      const isRefused = world.settings.refusesWhenDown && world.engine.isDown && fate === 'on its way'
      if (fate === 'refused') return
      fate = isRefused ? 'refused' : 'landed'
      if (!isRefused) return world.engine.receive(land, lost)
      world.count('connection refused')
      world.network.send({ ...route, direction: 'in', deliver: () => process.deliver(refused) })
    }
    for (const request of requests) world.count(`request ${request.kind}`)
    this.#sent += requests.length
    // A process that stands still sends nothing, even if a check has just looked at its leases.
    process.deliver(() => {
      for (const request of requests) world.note(address, '→', describeRequest(request))
      world.network.send({ ...route, direction: 'out', deliver: knock })
    })
  }
}

/** Handlers of what becomes of a message. */
interface Heard {
  onAnswers(answers: readonly EngineAnswer[]): void
  /** It never reached the engine. */
  onRefused(error: BackendUnavailableError): void
  /** There will be no answer; where connections are shared, that is noticed. */
  onLost?(): void
}
