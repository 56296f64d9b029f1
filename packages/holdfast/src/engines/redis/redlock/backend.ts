/** The SPI over several servers that know nothing of each other. */

import { callWith } from '../../../base/aborting.ts'
import { type Clock, keepProcessAlive } from '../../../base/clock.ts'
import { quote, UnsupportedError } from '../../../base/errors.ts'
import type { Random } from '../../../base/ids.ts'
import { operatorCallExpired, prolongedSince, raisedTtlMs } from '../../../kit/backend-kit.ts'
import type {
  Backend,
  BackendInfo,
  BackendSession,
  Call,
  Finding,
  NameState,
  OperatorCall,
  Page,
  PageRequest,
  SessionHandle,
  SessionRequest,
} from '../../../spi.ts'
import { isOlder, OLDEST_REDIS, type RedisReply } from '../client/index.ts'
import { diagnose } from './diagnosis.ts'
import { assertDistinct, type Ensemble } from './ensemble.ts'
import { ownerText } from './keys.ts'
import type { ClaimRequest, Identity, RedlockNode } from './node.ts'
import { scanPage } from './paging.ts'
import { attachScript } from './scripts.ts'
import { RedlockSession } from './session.ts'
import { type Found, lookAt } from './states.ts'

export class RedlockBackend implements Backend<'unfenced'> {
  readonly info: BackendInfo<'unfenced'>
  readonly clock: Clock
  readonly random: Random
  readonly #ensemble: Ensemble
  readonly #closeClients: () => Promise<void>

  constructor(ensemble: Ensemble, info: BackendInfo<'unfenced'>, closeClients = async () => {}) {
    this.info = info
    this.#closeClients = closeClients
    this.clock = ensemble.options.clock
    this.random = ensemble.options.random
    this.#ensemble = ensemble
  }

  /** Waits until a majority is connected; rejects, with the reasons, when that fails. */
  async reach(): Promise<void> {
    const alive = keepProcessAlive(this.clock)
    try {
      await this.#ensemble.reach(callWith())
    } finally {
      alive.cancel()
    }
  }

  /** Waits for all nodes, because only then is it known that they are different servers. */
  async openSession(request: SessionRequest, call: Call): Promise<BackendSession<'unfenced'>> {
    const since = this.#ensemble.begin(call)
    const { keys, quorum } = this.#ensemble
    const { id, holder } = request
    const ttlMs = raisedTtlMs(this.info, request.ttlMs)
    const poll = this.#ensemble.poll((node) => node.open([keys.session(id)], [String(ttlMs), holder]))
    await poll.until(() => false, call)
    const { answered } = poll
    assertDistinct(answered.map(({ node }) => node))
    for (const { node, value } of answered) assertUsable(node, value)
    if (answered.length < quorum) {
      const outcome = answered.length + poll.uncertain > 0 ? 'unknown' : 'not-applied'
      throw this.#ensemble.unavailable('opening a session: done', answered.length, poll, outcome)
    }
    const granted = Math.min(...answered.map(({ value }) => value.ttlMs))
    return new RedlockSession(this.#ensemble, { id, ttlMs: granted, holder, since })
  }

  async attachSession(handle: SessionHandle, call: Call): Promise<BackendSession<'unfenced'> | null> {
    const now = this.#ensemble.begin(call)
    const { keys, quorum, blocking } = this.#ensemble
    const id = String(handle.id)
    const poll = this.#ensemble.poll(
      async (node) => (await node.run(attachScript, [keys.session(id)], [])) as readonly RedisReply[],
    )
    const known = () => poll.count((value) => value.length > 0)
    const isUnknown = () => poll.count((value) => value.length === 0) >= blocking
    await poll.until(() => known() >= quorum || isUnknown(), call)
    if (isUnknown()) return null
    if (known() < quorum)
      throw this.#ensemble.unavailable('attaching: the session is known', known(), poll, 'not-applied')
    const found = poll.answered.filter(({ value }) => value.length > 0)
    const [ttl, holder] = found[0]?.value ?? []
    const ttlMs = Number(ttl)
    // Attaching prolongs nothing: belief counts from when a majority was last told to keep it.
    const left = found.map(({ value }) => Number(value[2])).sort((a, b) => b - a)
    const since = prolongedSince(now, { ttlMs, leftMs: left[quorum - 1] ?? 0 })
    return new RedlockSession(this.#ensemble, { id, ttlMs, holder: String(holder), since })
  }

  async inspect(name: string, call: Call): Promise<NameState | null> {
    return (await this.#look(name, call))?.state ?? null
  }

  async list(prefix: string, page: PageRequest, call: Call): Promise<Page<NameState>> {
    this.#ensemble.begin(call)
    if (!this.#ensemble.keys.areOurs)
      throw new UnsupportedError(
        'redlock: with a key function of your own, names cannot be found by their keys. inspect(name) works.',
      )
    const { items, next } = await scanPage(this.#ensemble, prefix, page, call)
    const found = items.length === 0 ? [] : await lookAt(this.#ensemble, items, call)
    return { items: found.map(({ state }) => state), next }
  }

  async diagnose(call: Call): Promise<readonly Finding[]> {
    return diagnose(this.#ensemble, call)
  }

  async check(_holder: unknown, call: Call): Promise<boolean> {
    this.#ensemble.begin(call)
    throw new UnsupportedError('redlock issues no fencing tokens, so there are none to check.')
  }

  /** Looks again, and then ends exactly the holder that it saw (T74, misaimed force releases; T78, late operators). */
  async forceRelease(
    name: string,
    ids: readonly string[],
    reason: string,
    call: OperatorCall,
  ): Promise<number> {
    const found = await this.#look(name, call)
    const [holder] = found?.state.holders ?? []
    if (found === null || holder === undefined || !ids.includes(holder.id)) return 0
    const { record, value } = found
    const { keys, quorum, blocking } = this.#ensemble
    const isOurs = record.kind === 'held'
    const args = [isOurs ? ownerText(record.attempt, record.session) : value, String(call.notAfterMs), reason]
    const request: ClaimRequest = {
      operation: 'force',
      session: keys.session(isOurs ? record.session : ''),
      lock: keys.lock(name),
      argsFor: () => args,
    }
    const poll = this.#ensemble.pollWith<RedisReply>((node, answer) => node.ask(request, answer))
    await poll.until(() => false, call)
    const ended = poll.count((reply) => reply === 'released')
    if (ended >= blocking) return 1
    if (poll.count((reply) => reply === 'expired') >= quorum) throw operatorCallExpired('redlock')
    // One vote that was taken away can be enough to end a bare majority.
    if (poll.answered.length >= quorum && ended + poll.uncertain === 0) return 0
    throw this.#ensemble.unavailable(`force release of ${quote(name)}: done`, ended, poll, 'unknown')
  }

  async resize(_name: string, _capacity: unknown, call: OperatorCall): Promise<never> {
    this.#ensemble.begin(call)
    throw new UnsupportedError('redlock has no semaphores, so there is no capacity to change.')
  }

  /** There is no data. */
  async forget(name: string, _data: string, call: OperatorCall): Promise<'in-use' | 'changed'> {
    return (await this.#look(name, call)) === null ? 'changed' : 'in-use'
  }

  async #look(name: string, call: Call): Promise<Found | null> {
    const [found = null] = await lookAt(this.#ensemble, [name], call)
    return found
  }

  /** Ends nothing that is held. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#ensemble.close()
    await this.#closeClients()
  }
}

function assertUsable({ label }: RedlockNode, { runId, version }: Identity): void {
  if (runId === '')
    throw new UnsupportedError(
      `redlock: ${label} does not let this user ask INFO, so neither a restart nor a server with two addresses ` +
        'would be noticed. Allow it: ACL SETUSER … +info.',
    )
  if (isOlder(version, OLDEST_REDIS))
    throw new UnsupportedError(
      `redlock: ${label} runs Redis ${version}; ${OLDEST_REDIS.join('.')} or newer is needed.`,
    )
}
