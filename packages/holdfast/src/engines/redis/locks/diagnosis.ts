/**
 * Requirements of a server. Before the first session, what is certainly wrong is refused, and what may cost guarantees is told as
 * a `warning` event. `diagnose` tells the same as findings, and what is only good to know as notes.
 */

import { UnsupportedError } from '../../../base/errors.ts'
import { warn } from '../../../base/events.ts'
import type { Call, Finding } from '../../../spi.ts'
import {
  type Concern,
  evictionConcern,
  ifPermitted,
  infoField,
  type RedisConnection,
  type RedisNode,
  refusalOf,
  settingOf,
  textOf,
  unchecked,
} from '../client/index.ts'

export interface ServerDemands {
  readonly namespace: string
  readonly isFenced: boolean
}

interface Diagnosis {
  readonly node: RedisNode
  readonly refusal: Finding | null
  readonly concerns: readonly Concern[]
  /** Of a set-up that many choose on purpose: not told at start. */
  readonly further: readonly Finding[]
}

export async function checkServer(
  connection: RedisConnection,
  demands: ServerDemands,
  call: Call,
): Promise<void> {
  await connection.reach(call.signal)
  await connection.checkDatabase(call.signal)
  for await (const { node, refusal, concerns } of diagnoses(connection, demands, call)) {
    if (refusal !== null) throw new UnsupportedError(`redis: ${node.label}: ${textOf(refusal)}.`)
    for (const concern of concerns) {
      if (concern.severity === 'note') continue
      const warning = `${node.label}: ${textOf(concern)}`
      warn({ backend: 'redis', namespace: demands.namespace, code: concern.code, warning })
    }
  }
}

export async function diagnoseServer(
  connection: RedisConnection,
  demands: ServerDemands,
  call: Call,
): Promise<readonly Finding[]> {
  await connection.reach(call.signal)
  const findings: Finding[] = []
  for await (const { node, refusal, concerns, further } of diagnoses(connection, demands, call))
    for (const finding of [...(refusal === null ? [] : [refusal]), ...concerns, ...further])
      findings.push({ ...finding, what: `${node.label}: ${finding.what}` })
  return findings
}

async function* diagnoses(
  connection: RedisConnection,
  { isFenced }: ServerDemands,
  { signal }: Call,
): AsyncGenerator<Diagnosis> {
  for (const node of await connection.nodes(signal)) {
    const told = await ifPermitted(node.send(['INFO'], signal))
    const info = told === null ? null : String(told)
    // False where it cannot be known.
    const forgets =
      info !== null &&
      infoField(info, 'aof_enabled') === '0' &&
      (await settingOf(node, 'save', signal)) === ''
    const concerns = [
      info === null ? unchecked('INFO', 'its version and role') : null,
      await evictionConcern(node, signal),
      forgets ? persistence(isFenced ? 'warning' : 'note') : null,
    ].filter((concern) => concern !== null)
    const replicas = Number(info === null ? 0 : infoField(info, 'connected_slaves'))
    const further = replicas > 0 ? [replicated(replicas, isFenced ? 'warning' : 'note')] : []
    yield { node, refusal: info === null ? null : refusalOf(info), concerns, further }
  }
}

function replicated(replicas: number, severity: 'warning' | 'note'): Finding {
  return {
    code: 'HOLDFAST_REDIS_REPLICAS',
    severity,
    what: `${replicas === 1 ? 'one replica follows it' : `${replicas} replicas follow it`}.`,
    why:
      'Replicas are told of a grant after its holder. After a fail-over, grants that the new primary has not received are free ' +
      'while their holders believe, and it may issue their tokens once more.',
    fix: 'Use a guard, and raise the epoch after a fail-over; or an engine with a quorum (etcd, ZooKeeper, Consul).',
  }
}

function persistence(severity: 'warning' | 'note'): Concern {
  return {
    code: 'HOLDFAST_REDIS_PERSISTENCE',
    severity,
    what: 'it has neither an append-only file nor snapshots.',
    why:
      'A restart forgets all leases and the last token: every name is free while its holder believes to have it, and if the ' +
      'clock has been set back as well, tokens are issued twice.',
    fix: 'Set appendonly yes, or save.',
  }
}
