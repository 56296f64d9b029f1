/** Sessions of Consul. Their ids are Consul's choice, so a creation that is asked again makes a second one, which ends by its TTL. */
import type { Call } from '../../../spi.ts'
import type { ConsulClient } from './client.ts'
import type { Member } from './member.ts'
import { arrayOf, recordOf } from './messages.ts'

export interface SessionTerms {
  readonly ttlMs: number
  /** Its keys go with it, or stay without a lock. */
  readonly behavior: 'delete' | 'release'
  readonly lockDelayMs?: number
  /** Checks that end it when they fail. By default none, not even that of the node: it would end sessions before their time. */
  readonly checks?: readonly string[]
}

export function createSession(
  client: ConsulClient,
  { ttlMs, behavior: Behavior, lockDelayMs = 0, checks = [] }: SessionTerms,
  call: Call,
): Promise<string> {
  const times = { TTL: `${ttlMs}ms`, LockDelay: `${lockDelayMs}ms` }
  // Consul 1.7 and later read NodeChecks, others Checks.
  const body = { Name: 'holdfast', Behavior, ...times, Checks: checks, NodeChecks: checks }
  const read = (_status: number, answer: unknown) => {
    const { ID } = recordOf(answer)
    if (typeof ID !== 'string' || ID === '') throw new Error('it has no session')
    return ID
  }
  const again = () => {}
  return client.ask({ method: 'PUT', path: '/v1/session/create', body, isRead: false, read }, call, again)
}

/** The member that has answered, or null: the session has gone. A leader that was deposed may answer as well (T88, resumed leaders). */
export function renewSession(client: ConsulClient, id: string, call: Call): Promise<Member | null> {
  const path = `/v1/session/renew/${id}`
  const read = (status: number, body: unknown, member: Member) => {
    if (status === 404) return null
    if (recordOf(arrayOf(body)[0]).ID !== id) throw new Error('it is about another session')
    return member
  }
  return client.ask({ method: 'PUT', path, isRead: false, also: [404], read }, call, () => {})
}

/** Also of one that has gone. */
export function destroySession(client: ConsulClient, id: string, call: Call): Promise<void> {
  const read = (_status: number, body: unknown) => {
    if (body !== true) throw new Error('it is not true')
  }
  const path = `/v1/session/destroy/${id}`
  return client.ask({ method: 'PUT', path, isRead: false, read }, call, () => {})
}
