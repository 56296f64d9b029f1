/** Plays commands to both engines of a comparison. */
import assert from 'node:assert/strict'
import { publicIdOf } from '../../../src/base/ids.ts'
import { listAll } from '../../../src/kit/backend-kit.ts'
import type { Claim, GrantedClaim } from '../../../src/spi.ts'
import { Operator, operatorCall } from '../../../src/testing/conformance/operator.ts'
import type { Runs } from '../runs.ts'
import { CLIENTS, type SpiCommand, ttls } from './commands.ts'
import type { Comparison, KnownAttempt, KnownSession } from './comparison.ts'
import type { Session, Side } from './side.ts'

/** After this long, every session is gone and everybody who waited has looked what became of it. */
const LONGEST_LIFE_MS = Math.max(...ttls) + 700

export async function play(on: Comparison, commands: readonly SpiCommand[], runs?: Runs): Promise<void> {
  runs?.begin()
  // A watch makes an engine notice what is due by itself; it must also answer like the model without one.
  const isWatched = commands.length % 2 === 1
  if (isWatched) await on.startWatching()
  // Somebody is there from the start, so that nearly every command has something to refer to.
  for (const client of [0, 1]) await perform(on, { do: 'open', client, ttl: 2 })
  for (const command of commands) {
    if (!(await perform(on, command))) continue
    runs?.count(command.do)
    await on.settle()
    noteWaits(on)
  }
  await pass(on, LONGEST_LIFE_MS)
  await on.settle(true)
  if (isWatched) on.compareWatches()
}

/** False if there is nothing yet that the command could refer to. */
async function perform(on: Comparison, command: SpiCommand): Promise<boolean> {
  switch (command.do) {
    case 'open':
      await open(on, on.newSession(command), 0)
      return true
    case 'reopen':
      await open(on, on.session(command.session), command.via)
      return true
    case 'attach':
      await attach(on, on.session(command.session), command.client)
      return true
    case 'close': {
      const session = on.session(command.session)
      await on.same((side) => on.sessionOn(side, session, command.via).close(on.call()))
      session.expiresAtMs = on.clock.monotonicMs()
      return true
    }
    case 'keepAlive':
      await keepAlive(on, on.session(command.session), command)
      return true
    case 'try':
      await tryAcquire(on, on.newAttempt(command), command.via)
      return true
    case 'enqueue':
      await enqueue(on, on.newAttempt(command), command.via)
      return true
    case 'hangUp':
      return hangUp(on, command.wait)
    case 'resize': {
      const { client, capacity } = command
      await on.same((side) => operatorOf(side, client).resize(on.name(command.name), capacity))
      return true
    }
    case 'forget':
      await on.same(async (side) => {
        const client = side.client(command.client)
        const name = on.name(command.name)
        const data = (await client.inspect(name, on.call()))?.data ?? 'no data'
        return client.forget(name, data, operatorCall())
      })
      return true
    case 'inspect':
      await on.same(
        (side) => side.client(command.client).inspect(on.name(command.name), on.call()),
        (state, side) => side.state(command.client, state),
      )
      return true
    case 'list':
      await on.same(
        (side) => listAll(side.client(command.client), on.name(command.name), on.call()),
        (states, side) => states.map((state) => side.state(command.client, state)),
      )
      return true
    case 'pass':
      await pass(on, command.ms)
      return true
    default: {
      const attempt = on.attempt(command.attempt)
      if (attempt === undefined) return false
      await performOn(on, attempt, command)
      return true
    }
  }
}

type OnAttempt = Extract<SpiCommand, { readonly attempt: number }>

async function performOn(on: Comparison, attempt: KnownAttempt, command: OnAttempt): Promise<void> {
  const { request } = attempt
  switch (command.do) {
    case 'tryAgain':
      return tryAcquire(on, attempt, command.via)
    case 'enqueueAgain':
      return enqueue(on, attempt, Math.max(0, attempt.session.clients.indexOf(attempt.client)))
    case 'release': {
      const by = ownerOf(on, attempt, command.wrong)
      const { keepForMs } = command
      await on.same((side) =>
        on.sessionOn(side, by, command.via).release(granted(side, request), { keepForMs }, on.call()),
      )
      if (!command.wrong) attempt.state = 'over'
      return
    }
    case 'abandon': {
      const by = ownerOf(on, attempt, command.wrong)
      await on.same((side) => on.sessionOn(side, by, command.via).abandon(request, on.call()))
      if (!command.wrong) attempt.state = 'over'
      return
    }
    case 'setData': {
      const by = ownerOf(on, attempt, command.wrong)
      const data = `left by ${on.attempts.indexOf(attempt)}`
      await on.same(async (side) =>
        on.sessionOn(side, by, command.via).setData?.(granted(side, request), data, on.call()),
      )
      return
    }
    case 'force': {
      await on.same((side) =>
        operatorOf(side, command.client).force(request.name, ({ holder, token }) => {
          if (command.target === 'all') return true
          if (command.target === 'holder') return holder === attempt.session.holder
          return token === side.rawToken(request.attempt)
        }),
      )
      return
    }
    case 'check': {
      const { name } = request
      const id = publicIdOf(request.attempt)
      await on.same((side) => {
        const token = side.rawToken(request.attempt) ?? 1n
        return side.client(command.client).check({ name, id, token }, on.call())
      })
      return
    }
  }
}

function ownerOf(on: Comparison, attempt: KnownAttempt, wrong: boolean): KnownSession {
  const stranger = on.sessions.findLast((session) => session !== attempt.session)
  return wrong && stranger !== undefined ? stranger : attempt.session
}

async function open(on: Comparison, session: KnownSession, via: number): Promise<void> {
  const client = session.clients[via % session.clients.length] ?? 0
  const { id, ttlMs, holder } = session
  await on.same(
    async (side) => {
      const opened = await side.client(client).openSession({ id, ttlMs, holder }, on.call())
      side.sessions.set(`${session.number}@${client}`, opened)
      return opened
    },
    (opened) => ({ id: opened.id, ttlMs: opened.ttlMs, sinceMs: opened.since.monotonicMs }),
  )
  const nowMs = on.clock.monotonicMs()
  // Asked for again after its end, it is another session: what other clients have of the old one is worth nothing.
  if (nowMs >= session.expiresAtMs) session.clients.splice(0, Infinity, client)
  session.expiresAtMs = nowMs + ttlMs
}

async function attach(on: Comparison, session: KnownSession, client: number): Promise<void> {
  const number = client % on.sides[0].clients.length
  const attached = await on.same(
    async (side) => {
      const known = on.sessionOn(side, session, 0)
      // As text, as it would travel to another process.
      const handle = JSON.parse(JSON.stringify(known.handle)) as typeof known.handle
      const found = await side.client(number).attachSession(handle, on.call())
      // Both sides can tell when a session was last prolonged.
      const attached = found as Session | null
      if (attached !== null) side.sessions.set(`${session.number}@${number}`, attached)
      return attached
    },
    (found, side) => {
      if (found === null) return null
      const endsMs = found.since.monotonicMs + found.ttlMs
      assert(endsMs <= session.expiresAtMs, `${side.title}: attaching prolonged the session`)
      return { id: found.id, ttlMs: found.ttlMs, endsMs }
    },
  )
  if (attached !== null && attached !== undefined && !session.clients.includes(number))
    session.clients.push(number)
}

async function keepAlive(
  on: Comparison,
  session: KnownSession,
  command: Extract<SpiCommand, { do: 'keepAlive' }>,
): Promise<void> {
  const listed =
    command.list === 'none'
      ? { held: [] as Claim[], waiting: [] as Claim[] }
      : { held: on.claimsOf(session, 'held'), waiting: on.claimsOf(session, 'waiting') }
  const nowMs = on.clock.monotonicMs()
  await on.same(
    (side) =>
      on
        .sessionOn(side, session, command.via)
        .keepAlive({ ...listed, held: listed.held.map((claim) => granted(side, claim)) }, on.call()),
    (kept, side) => {
      if (kept.kind === 'alive') session.expiresAtMs = Math.max(session.expiresAtMs, nowMs + session.ttlMs)
      return on.viewKept(kept, side, session)
    },
  )
}

async function tryAcquire(on: Comparison, attempt: KnownAttempt, via: number): Promise<void> {
  const { request, session } = attempt
  const result = await on.same(
    (side) => on.sessionOn(side, session, via).tryAcquire(request, on.call()),
    (answer, side) => (answer.kind === 'granted' ? on.viewGrant(answer.grant, side, session) : answer),
  )
  if (result?.kind === 'granted') attempt.state = 'held'
}

async function enqueue(on: Comparison, attempt: KnownAttempt, via: number): Promise<void> {
  on.waits.push(attempt)
  attempt.state = 'waiting'
  for (const side of on.sides) await side.startWait(on.sessionOn(side, attempt.session, via), attempt.request)
}

function noteWaits(on: Comparison): void {
  for (const [at, attempt] of on.waits.entries()) {
    const outcome = on.sides[0].waits[at]?.outcome
    if (outcome === undefined || attempt.state !== 'waiting') continue
    // Who has hung up does not know, and goes on listing it as waiting, as core does until it has abandoned it.
    if ('answer' in outcome) attempt.state = outcome.answer.kind === 'granted' ? 'held' : 'over'
  }
}

function hangUp(on: Comparison, number: number): boolean {
  const pending = on.sides[0].waits.flatMap((wait, at) => (wait.outcome === undefined ? [at] : []))
  const at = pending[number % Math.max(1, pending.length)]
  if (at === undefined) return false
  for (const side of on.sides) side.waits[at]?.controller.abort(new Error('hung up'))
  return true
}

/** Stops at every moment at which something falls due, so that what is slow cannot be mistaken for being late. */
async function pass(on: Comparison, ms: number): Promise<void> {
  const endMs = on.clock.monotonicMs() + ms
  while (on.clock.monotonicMs() < endMs) {
    const nowMs = on.clock.monotonicMs()
    const dueMs = on.sessions.map((session) => session.expiresAtMs)
    for (const client of [on.sides[0].client(0), on.sides[0].client(CLIENTS - 1)])
      for (const state of await listAll(client, '', on.call())) dueMs.push(nowMs + (state.closedForMs ?? 0))
    const nextMs = Math.min(endMs, ...dueMs.filter((due) => due > nowMs))
    await on.clock.advance(nextMs - nowMs)
    // Any request makes an engine do what is due, at this very moment; left alone, it may take a little longer.
    await on.same((side) => side.client(0).forget('a name that nobody uses', 'no data', operatorCall()))
    await on.settle()
    noteWaits(on)
  }
}

function operatorOf(side: Side, client: number): Operator {
  return new Operator(side.client(client))
}

/** The claim with the grant that this side made last. */
function granted(side: Side, { name, attempt }: Claim): GrantedClaim {
  return { name, attempt, grantId: String(side.rawToken(attempt) ?? 1n) }
}
