/** The SPI over several servers that know nothing of each other. */

import { callWith } from '../../base/aborting.ts'
import { type Clock, keepProcessAlive } from '../../base/clock.ts'
import { UnsupportedError } from '../../base/errors.ts'
import type { Random } from '../../base/ids.ts'
import { isOlder, OLDEST_REDIS, type RedisReply } from '../../clients/redis/index.ts'
import { operatorCallExpired, prolongedSince } from '../../kit/backend-kit.ts'
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
} from '../../spi.ts'
import { diagnose } from './diagnosis.ts'
import { assertDistinct, type Ensemble } from './ensemble.ts'
import { bootKey, ownerText } from './layout.ts'
import { lookAt, lookAtAll } from './looking.ts'
import type { RedlockNode } from './node.ts'
import { scanPage } from './paging.ts'
import { attachScript, forceScript, openScript } from './scripts.ts'
import { RedlockSession } from './session.ts'

interface Opened {
  readonly node: RedlockNode
  readonly runId: string
  readonly version: string
  readonly ttlMs: number
}

export class RedlockBackend implements Backend<'unfenced'> {
  readonly info: BackendInfo<'unfenced'>
  readonly clock: Clock
  readonly random: Random
  readonly #ensemble: Ensemble
  readonly #closeClients: () => Promise<void>

  constructor(ensemble: Ensemble, info: BackendInfo<'unfenced'>, closeClients = async () => {}) {
    this.info = info
    this.#closeClients = closeClients
    this.clock = ensemble.clock
    this.random = ensemble.random
    this.#ensemble = ensemble
  }

  /** Waits until a majority is connected; rejects, with what is the matter, when that is not to be had. */
  async reach(): Promise<void> {
    const alive = keepProcessAlive(this.clock)
    try {
      await this.#ensemble.reach(callWith())
    } finally {
      alive.cancel()
    }
  }

  /** Waits for all nodes, because only then is it known that they are not one. */
  async openSession(request: SessionRequest, call: Call): Promise<BackendSession<'unfenced'>> {
    const since = this.#ensemble.begin(call)
    const { layout, quarantineMs, quorum } = this.#ensemble
    const { id, ttlMs, holder } = request
    const args = [String(quarantineMs), String(ttlMs), holder]
    const poll = this.#ensemble.poll(async (node) =>
      openedAt(node, await node.run(openScript, [bootKey, layout.session(id)], args)),
    )
    await poll.until(() => false, call)
    const opened = poll.answered.map(({ value }) => value)
    assertDistinct(opened)
    for (const each of opened) assertUsable(each)
    if (opened.length < quorum) {
      const outcome = opened.length + poll.uncertain.length > 0 ? 'unknown' : 'not-applied'
      throw this.#ensemble.unavailable('opening a session: done', opened.length, poll, outcome)
    }
    const granted = Math.min(...opened.map((each) => each.ttlMs))
    return new RedlockSession(this.#ensemble, { id, ttlMs: granted, holder, since })
  }

  async attachSession(handle: SessionHandle, call: Call): Promise<BackendSession<'unfenced'> | null> {
    const now = this.#ensemble.begin(call)
    const { layout, quorum, blocking } = this.#ensemble
    const id = String(handle.id)
    const poll = this.#ensemble.poll(
      async (node) => (await node.run(attachScript, [layout.session(id)], [])) as readonly RedisReply[],
    )
    const known = () => poll.answered.filter(({ value }) => value.length > 0)
    const unknown = () => poll.count((value) => value.length === 0)
    await poll.until(() => known().length >= quorum || unknown() >= blocking, call)
    if (unknown() >= blocking) return null
    const found = known()
    if (found.length < quorum)
      throw this.#ensemble.unavailable('attaching: the session is known', found.length, poll, 'not-applied')
    const [ttl, holder] = found[0]?.value ?? []
    const ttlMs = Number(ttl)
    // Attaching prolongs nothing: belief counts from when a majority was last told to keep it.
    const left = found.map(({ value }) => Number(value[2])).sort((a, b) => b - a)
    const since = prolongedSince(now, { ttlMs, leftMs: left[quorum - 1] ?? 0 })
    return new RedlockSession(this.#ensemble, { id, ttlMs, holder: String(holder), since })
  }

  async inspect(name: string, call: Call): Promise<NameState | null> {
    return (await lookAt(this.#ensemble, name, call))?.state ?? null
  }

  async list(prefix: string, page: PageRequest, call: Call): Promise<Page<NameState>> {
    this.#ensemble.begin(call)
    if (!this.#ensemble.layout.isOwn)
      throw new UnsupportedError(
        'redlock: with a key function of your own, names cannot be found by their keys. inspect(name) works.',
      )
    const { items, next } = await scanPage(this.#ensemble, prefix, page, call)
    return { items: await lookAtAll(this.#ensemble, items, call), next }
  }

  async diagnose(call: Call): Promise<readonly Finding[]> {
    return diagnose(this.#ensemble, call)
  }

  async check(_holder: unknown, call: Call): Promise<boolean> {
    this.#ensemble.begin(call)
    throw new UnsupportedError('redlock issues no fencing tokens, so there are none to check.')
  }

  /** Looks again, and then ends exactly the holder that it saw (T74, T78). */
  async forceRelease(
    name: string,
    ids: readonly string[],
    reason: string,
    call: OperatorCall,
  ): Promise<number> {
    const found = await lookAt(this.#ensemble, name, call)
    const [holder] = found?.state.holders ?? []
    if (found === null || holder === undefined || !ids.includes(holder.id)) return 0
    const { record } = found
    if (record.kind === 'closed') return 0
    const { layout, quorum, blocking } = this.#ensemble
    const [owner, session] =
      record.kind === 'held'
        ? [ownerText(record), layout.session(record.session)]
        : [record.value, layout.lock(name)]
    const args = [owner, record.kind === 'held' ? '1' : '0', String(call.notAfterMs), reason]
    const poll = this.#ensemble.poll((node) => node.operate(forceScript, [layout.lock(name), session], args))
    await poll.until(() => poll.answered.length === this.#ensemble.nodes.length, call)
    const ended = poll.count((answer) => answer === 1)
    const late = poll.count((answer) => answer === -1)
    if (ended >= blocking) return 1
    if (late >= quorum) throw operatorCallExpired('redlock')
    // One vote that was taken away can be enough to end a bare majority.
    if (poll.answered.length >= quorum && ended + poll.uncertain.length === 0) return 0
    throw this.#ensemble.unavailable(`force release of ${JSON.stringify(name)}: done`, ended, poll, 'unknown')
  }

  async resize(_name: string, _capacity: unknown, call: OperatorCall): Promise<never> {
    this.#ensemble.begin(call)
    throw new UnsupportedError('redlock has no semaphores, so there is no capacity to change.')
  }

  /** There is no data. */
  async forget(name: string, _data: string, call: OperatorCall): Promise<'in-use' | 'changed'> {
    return (await lookAt(this.#ensemble, name, call)) === null ? 'changed' : 'in-use'
  }

  /** Ends nothing that is held. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#ensemble.close()
    await this.#closeClients()
  }
}

function openedAt(node: RedlockNode, reply: RedisReply): Opened {
  const [runId, quarantinedForMs, version, ttl] = reply as readonly RedisReply[]
  node.learn(String(runId), Number(quarantinedForMs))
  return { node, runId: String(runId), version: String(version), ttlMs: Number(ttl) }
}

function assertUsable({ node, runId, version }: Opened): void {
  if (runId === '')
    throw new UnsupportedError(
      `redlock: ${node.label} does not let this user ask INFO, so neither a restart nor a server with two addresses ` +
        'would be noticed. Allow it: ACL SETUSER … +info.',
    )
  if (isOlder(version, OLDEST_REDIS))
    throw new UnsupportedError(
      `redlock: ${node.label} runs Redis ${version}; ${OLDEST_REDIS.join('.')} or newer is needed.`,
    )
}
