/** Findings about the servers that matter for locks: the checks of the start, and further ones. */

import { defaultDriftMs, defaults } from '../../../base/defaults.ts'
import type { Call, Finding } from '../../../spi.ts'
import { evictionConcern, ifPermitted, infoField, refusalOf, settingOf, unchecked } from '../client/index.ts'
import { type Ensemble, twinsAmong } from './ensemble.ts'
import type { RedlockNode } from './node.ts'
import { reasonOf } from './poll.ts'

export async function diagnose(ensemble: Ensemble, call: Call): Promise<readonly Finding[]> {
  ensemble.begin(call)
  const poll = ensemble.poll((node) => diagnoseNode(ensemble, node))
  await poll.until(() => false, call)
  const { answered, failed } = poll
  const silent = failed.map(({ node, error }) =>
    noAnswer(ensemble, node, reasonOf(node, error), failed.length),
  )
  const twins = twinsAmong(answered.map(({ node }) => node)).map(([one, other]) => sameServer(one, other))
  const ofNodes = answered.flatMap(({ node, value }) =>
    value.findings.map((finding) => ({ ...finding, what: `${node.label}: ${finding.what}` })),
  )
  const clocks = clocksApart(
    answered.map(({ node, value }) => ({ label: node.label, ...value })),
    defaultDriftMs(defaults.ttlMs),
  )
  return [...silent, ...twins, ...ofNodes, ...clocks]
}

interface NodeClock {
  readonly label: string
  /** How far the server's wall clock is ahead of ours: at least, and at most, because the answer was under way. */
  readonly ahead: readonly [leastMs: number, mostMs: number]
}

/** Servers whose clocks differ by more than a lease allows for. */
export function clocksApart(clocks: readonly NodeClock[], driftMs: number): readonly Finding[] {
  const first = clocks.toSorted((a, b) => b.ahead[0] - a.ahead[0])[0]
  const last = clocks.toSorted((a, b) => a.ahead[1] - b.ahead[1])[0]
  if (first === undefined || last === undefined) return []
  const apartMs = Math.round(first.ahead[0] - last.ahead[1])
  if (apartMs <= driftMs) return []
  return [
    {
      code: 'HOLDFAST_REDLOCK_CLOCKS',
      severity: 'warning',
      what: `The clock of ${first.label} is ${apartMs} ms or more ahead of that of ${last.label}.`,
      why:
        `A lease of ${defaults.ttlMs / 1_000} s allows for ${Math.round(driftMs)} ms. A clock that is stepped to correct it ends votes early or ` +
        'late, and one stepped clock is enough for two holders.',
      fix: 'Let NTP slew the clocks of all servers (chrony does after its start), and never step one that votes.',
    },
  ]
}

async function diagnoseNode(
  { options: { persistence, clock } }: Ensemble,
  node: RedlockNode,
): Promise<{ readonly findings: readonly Finding[] } & Pick<NodeClock, 'ahead'>> {
  const isEveryWrite = persistence === 'every-write'
  const told = await ifPermitted(node.send(['INFO']))
  const info = told === null ? null : String(told)
  if (info !== null) await node.open()
  const fsync = isEveryWrite ? await settingOf(node, 'appendfsync') : null
  const findings = [
    info === null ? unchecked('INFO', 'its version and restarts') : refusalOf(info),
    await evictionConcern(node),
    info !== null && isEveryWrite ? notEveryWrite(info, fsync) : null,
    noVoteYet(node.quarantinedForMs),
  ]
  const before = clock.wallMs()
  const [seconds, micros] = (await node.send(['TIME'])) as readonly (string | number)[]
  const serverMs = Number(seconds) * 1_000 + Number(micros) / 1_000
  return {
    findings: findings.filter((finding) => finding !== null),
    ahead: [serverMs - clock.wallMs(), serverMs - before],
  }
}

function noAnswer({ blocking }: Ensemble, node: RedlockNode, reason: string, failed: number): Finding {
  return {
    code: 'HOLDFAST_REDLOCK_NO_VOTE',
    severity: failed >= blocking ? 'danger' : 'warning',
    what: `${node.label}: it has no vote now: ${reason}.`,
    why:
      failed >= blocking
        ? 'No majority is left, so nothing is granted or renewed.'
        : 'Locks are granted by the others, and fewer of them may fail.',
    fix: 'See to that server.',
  }
}

function sameServer(one: RedlockNode, other: RedlockNode): Finding {
  return {
    code: 'HOLDFAST_REDLOCK_SAME_SERVER',
    severity: 'danger',
    what: `${one.label} and ${other.label} are one and the same server.`,
    why: 'It would vote twice, so sessions are refused.',
    fix: 'Give every node a server of its own.',
  }
}

/** `persistence: 'every-write'` promises it. */
function notEveryWrite(info: string, appendfsync: string | null): Finding | null {
  const isOn = infoField(info, 'aof_enabled') === '1'
  if (isOn && (appendfsync === 'always' || appendfsync === null)) return null
  return {
    code: 'HOLDFAST_REDLOCK_PERSISTENCE',
    severity: 'danger',
    what: `it does not have every write on its disk: appendonly is ${isOn ? 'yes' : 'no'}, appendfsync is ${appendfsync ?? 'not known'}.`,
    why: "With persistence: 'every-write' a restarted server votes at once. If it has forgotten a lock, two may hold one name.",
    fix: "Set appendonly yes and appendfsync always, or persistence: 'none' in all clients.",
  }
}

function noVoteYet(quarantinedForMs: number): Finding | null {
  if (quarantinedForMs <= 0) return null
  return {
    code: 'HOLDFAST_REDLOCK_NO_VOTE',
    severity: 'note',
    what: `it votes in ${Math.ceil(quarantinedForMs / 1_000)} s.`,
    why: 'It started, or took over, less than maxTtlMs ago, and may have forgotten a lock that is still believed in.',
    fix: 'Wait, or use a smaller maxTtlMs in all clients.',
  }
}
