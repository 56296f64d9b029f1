/** State that the backend and its sessions share: the way to the server, and the waiters. */

import { unlessAborted } from '../../../base/aborting.ts'
import type { Clock } from '../../../base/clock.ts'
import { BackendUnavailableError } from '../../../base/errors.ts'
import type { Random } from '../../../base/ids.ts'
import { cancelledCall, operatorCallExpired } from '../../../kit/backend-kit.ts'
import { Lifetime } from '../../../kit/lifetime.ts'
import type { Call, OperatorCall } from '../../../spi.ts'
import type { RedisConnection, RedisReply, RedisScript } from '../client/index.ts'
import { checkServer, type ServerDemands } from './diagnosis.ts'
import { withoutRights } from './failures.ts'
import { type Keys, TOKEN_KEY } from './keys.ts'
import { type ShortScripts, shortScriptsFor } from './scripts/short.ts'
import { Sender } from './sender.ts'
import { RedisWaitingRoom } from './waiting-room.ts'

export interface ConnectionOptions {
  readonly client: RedisConnection
  readonly keys: Keys
  readonly demands: ServerDemands
  readonly pollMs: number
  readonly clock: Clock
  readonly random: Random
}

export class Connection {
  readonly client: RedisConnection
  readonly keys: Keys
  readonly demands: ServerDemands
  readonly clock: Clock
  readonly random: Random
  readonly lifetime: Lifetime
  readonly sender: Sender
  readonly room: RedisWaitingRoom
  /** Where grants for this process are pushed to. */
  readonly channel: string
  /** The first argument of every script about a name: see `scripts/prelude.ts`. */
  readonly setting: string
  /** The key that exists while the namespace is watched; empty on a Cluster. */
  readonly watch: string
  readonly short: ShortScripts
  /** The last keys of such a script: the mark of the tokens, where all come from one. */
  readonly marks: readonly string[]
  /** The server has been looked at, and pushes arrive. */
  isReady = false
  #preparing: Promise<void> | undefined

  constructor({ client, keys, demands, pollMs, clock, random }: ConnectionOptions) {
    this.client = client
    this.keys = keys
    this.demands = demands
    this.clock = clock
    this.random = random
    this.lifetime = new Lifetime('redis', clock)
    this.channel = keys.channel(random.id())
    const { isCluster, keyPrefix } = client
    this.marks = demands.isFenced && !isCluster ? [TOKEN_KEY] : []
    const tokens = isCluster ? (demands.isFenced ? '2' : '3') : demands.isFenced ? '1' : '0'
    this.watch = isCluster ? '' : keyPrefix + keys.watch
    this.setting = tokens + this.watch
    this.short = shortScriptsFor(tokens)
    this.sender = new Sender(this)
    this.room = new RedisWaitingRoom({
      clock,
      random,
      pollMs,
      look: (requests, onAnswered) =>
        this.lifetime.inBackground((call) => this.sender.sendAll(requests, call, { onAnswered })),
    })
  }

  /** Once for all sessions: the first waiter shall not wait for the subscription. */
  prepare(call: Call): Promise<void> {
    this.#preparing ??= this.lifetime
      .inBackground((own) => this.#prepare(own))
      .catch((error: unknown) => {
        this.#preparing = undefined
        throw withoutRights('publishing or subscribing', error)
      })
    return unlessAborted(this.#preparing, call.signal, () =>
      cancelledCall('redis', call.signal, 'not-applied'),
    )
  }

  async #prepare(call: Call): Promise<void> {
    await checkServer(this.client, this.demands, call)
    const { room } = this
    await this.client.subscribe(
      this.channel,
      (message) => room.receive(message),
      () => room.lookForAll(),
      call.signal,
    )
    this.isReady = true
  }

  /** A script about one name. */
  runFor(script: RedisScript, name: string, args: readonly string[], call: Call): Promise<RedisReply> {
    const keys = [this.keys.lock(name), ...this.marks]
    return this.client.run(script, keys, [this.setting, ...args], call.signal)
  }

  /**
   * Runs an operator's script. If the connection was lost during the call, the answer may belong to a second copy: the
   * outcome is unknown.
   */
  async operate(
    script: RedisScript,
    name: string,
    args: readonly string[],
    call: OperatorCall,
  ): Promise<string> {
    const losses = this.client.lossCount()
    const answer = String(await this.runFor(script, name, [String(call.notAfterMs), ...args], call))
    if (losses !== this.client.lossCount())
      throw new BackendUnavailableError(
        'redis',
        'the connection was lost during the call, and the client may have sent it twice. Inspect the name, then decide',
        'unknown',
      )
    if (answer === 'late') throw operatorCallExpired('redis')
    return answer
  }

  /** The error of all calls from now on. */
  close(): unknown {
    const error = this.lifetime.end()
    this.room.close(error)
    this.sender.close()
    this.client.close()
    return error
  }
}
