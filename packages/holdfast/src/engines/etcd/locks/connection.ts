/** State that backend and sessions share: the client, the batches of transactions, the reads of queues, and the one stream of watches. */
import type { Clock } from '../../../base/clock.ts'
import { BackendUnavailableError, type CallOutcome } from '../../../base/errors.ts'
import type { Random } from '../../../base/ids.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import { Lane } from '../../../kit/lane.ts'
import { Lifetime } from '../../../kit/lifetime.ts'
import type { Call } from '../../../spi.ts'
import * as etcd from '../client/index.ts'
import { Keys, MAX_BATCH } from './keys.ts'
import { Found, foundByName } from './records.ts'

export const BACKEND = 'etcd'

/**
 * A transaction for one name. `build` is told its position in the batch, which is part of the token. A batch is asked again (T98,
 * dropped proposals). That does no harm, however late a copy lands:
 *
 *   join       finds the key that the first copy has made, with its grant. A copy that lands when the attempt is over makes a claim
 *              that is unlisted in the next keep-alive. So the attempt is never settled, and its key is nobody else's (slots.ts).
 *   confirm    compares the creation of its key, and that it waits. So a second copy does nothing, and reads the grant of the first.
 *   leave, abandon   delete a key only if it is the attempt's.
 *   release    compares the revision of its grant. If the second copy finds nothing to release, the outcome is unknown (T13, repeated releases).
 *   data       is never asked again: a late copy would undo what the same holder has stored since. So it leaves in batches of its own.
 */
interface Statement {
  readonly name: string
  readonly build: (index: number) => etcd.TxnRequest
}

/** `branch`: the condition was met; that of the transaction in the else branch was; or neither. */
export interface Committed {
  readonly branch: 'first' | 'second' | 'none'
  readonly found: Found
  /** The request was sent more than once. The answer is that of any copy, and others may still land. */
  readonly isRepeated: boolean
  /** That of all writes of the batch. */
  readonly revision: number
  readonly index: number
}

export class Connection {
  readonly client: etcd.EtcdClient
  readonly namespace: string
  readonly clock: Clock
  readonly random: Random
  readonly keys: Keys
  readonly lifetime: Lifetime
  readonly watches: etcd.Watches
  readonly #lane: Lane<Statement, Committed>
  /** For what is never asked again. */
  readonly #onceLane: Lane<Statement, Committed>
  readonly #looks: Lane<string, Found>

  constructor(client: etcd.EtcdClient, namespace: string, clock: Clock, random: Random) {
    this.client = client
    this.namespace = namespace
    this.clock = clock
    this.random = random
    this.keys = new Keys(namespace)
    this.lifetime = new Lifetime(BACKEND, clock)
    this.watches = new etcd.Watches(client, neverCancelled, clock)
    const options = {
      backend: BACKEND,
      clock,
      maxBatch: MAX_BATCH,
      // Requests for one name cannot share a transaction. When many wait for one, more transactions are in flight.
      maxInFlight: 16,
      freeInFlight: 2,
      minFurther: 16,
      // Two small transactions cost the members more than one.
      minSplit: Number.POSITIVE_INFINITY,
      keyOf: ({ name }: Statement) => name,
    }
    this.#lane = new Lane({ ...options, send: (statements, call) => this.#send(statements, true, call) })
    this.#onceLane = new Lane({ ...options, send: (statements, call) => this.#send(statements, false, call) })
    this.#looks = new Lane({
      backend: BACKEND,
      clock,
      maxBatch: Number.POSITIVE_INFINITY,
      send: (names, call) => this.#lookAt(names, call),
    })
  }

  /** One attempt. What leaves at the same moment is one transaction. */
  commit(name: string, build: Statement['build'], call: Call, isRepeatable = true): Promise<Committed> {
    this.lifetime.begin(call)
    return (isRepeatable ? this.#lane : this.#onceLane).ask({ name, build }, call)
  }

  /** A name as it is now. */
  look(name: string, call: Call): Promise<Found> {
    this.lifetime.begin(call)
    return this.#looks.ask(name, call)
  }

  /** A linearizable read at one revision, of at most `READS_AT_ONCE` operations. */
  async read(operations: readonly etcd.Operation[], call: Call): Promise<Found> {
    return this.found(await this.transact(etcd.always(operations), call))
  }

  /** `onAgain`: it may be applied twice, and is called when it is asked again. */
  transact(request: etcd.TxnRequest, call: Call, onAgain?: () => void): Promise<etcd.TxnResponse> {
    this.lifetime.begin(call)
    return this.client.ask(etcd.methods.txn, request, call, onAgain)
  }

  found(response: etcd.TxnResponse, revision = response.header?.revision ?? 0): Found {
    return new Found(this.keys, etcd.kvsOf(response), revision)
  }

  close(): void {
    if (this.lifetime.isOver) return
    this.lifetime.end()
    this.#lane.close()
    this.#onceLane.close()
    this.#looks.close()
    this.watches.close()
    this.client.close()
  }

  /** A full etcd refuses a whole batch for one put. What puts nothing is then sent without the others. */
  async #send(
    statements: readonly Statement[],
    isRepeatable: boolean,
    call: Call,
  ): Promise<(Committed | Error)[]> {
    const requests = statements.map(({ build }, index) => build(index))
    try {
      return await this.#commitAll(requests, isRepeatable, call)
    } catch (error) {
      const harmless = requests.filter(etcd.putsNothing)
      const isMixed = harmless.length > 0 && harmless.length < requests.length
      if (!isMixed || !(error instanceof Error) || !etcd.isFull(error)) throw error
      const committed = await this.#commitAll(harmless, isRepeatable, call)
      return requests.map((request) => committed[harmless.indexOf(request)] ?? error)
    }
  }

  async #commitAll(
    requests: readonly etcd.TxnRequest[],
    isRepeatable: boolean,
    call: Call,
  ): Promise<Committed[]> {
    let isRepeated = false
    const onAgain = () => {
      isRepeated = true
    }
    const request = etcd.together(requests)
    const answer = await this.client.ask(etcd.methods.txn, request, call, isRepeatable ? onAgain : undefined)
    const revision = answer.header?.revision ?? 0
    return etcd.answersOf(requests, answer).map((response, index) => {
      const isSecond = response.responses[0]?.txn?.succeeded === true
      const branch = response.succeeded ? 'first' : isSecond ? 'second' : 'none'
      return { branch, isRepeated, found: this.found(response, revision), revision, index }
    })
  }

  async #lookAt(names: readonly string[], call: Call): Promise<Found[]> {
    const ranges = [...new Set(names)].map((name) => etcd.getAll(this.keys.name(name)))
    const { kvs, revision } = await etcd.readAll(this.client, ranges, call)
    const found = foundByName(this.keys, kvs, revision)
    return names.map((name) => found.get(name) ?? new Found(this.keys, [], revision))
  }
}

export function unavailable(what: string, outcome: CallOutcome): BackendUnavailableError {
  return new BackendUnavailableError(BACKEND, what, outcome)
}
