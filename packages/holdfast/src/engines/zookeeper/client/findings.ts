/** Findings about an ensemble's configuration that matter for locks. Most of it is asked for as any client may; the rest by a four-letter word. */
import { unlessStopped } from '../../../base/aborting.ts'
import { type Clock, judgeLate } from '../../../base/clock.ts'
import type { Call, Finding } from '../../../spi.ts'
import type { ZooKeeperClient } from './client.ts'
import { dial } from './socket.ts'

const WORD_LIMIT_MS = 1_000
/** A token has 16 bits for ZooKeeper's epoch, which grows with each leader. */
const MANY_LEADERS = 50_000
const LAST_LEADER = 65_535
/** ZooKeeper's default for one address. */
const FEW_CONNECTIONS = 60

export async function ensembleFindings(
  client: ZooKeeperClient,
  clock: Clock,
  call: Call,
): Promise<Finding[]> {
  const findings: Finding[] = []
  const add = (code: string, severity: Finding['severity'], what: string, why: string, fix: string) =>
    findings.push({ code: `HOLDFAST_ZOOKEEPER_${code}`, severity, what, why, fix })

  const { acl, hosts } = client.options
  if (acl === 'open')
    add(
      'OPEN_ACL',
      'warning',
      "The nodes are open to everybody (acl: 'open').",
      'Whoever reaches ZooKeeper can take, release and delete locks.',
      'Give a user name and a password, or a certificate, and leave acl out. Stop all processes before, and delete the old nodes.',
    )
  const session = await client.shared(call)
  const configured = await session.ask({ op: 'getData', path: '/zookeeper/config' }, call)
  const voters = configured.ok ? configured.data.split('\n').filter(isVoter).length : 0
  // A member that is alone has no such list.
  if (voters < 3)
    add(
      'FEW_MEMBERS',
      'warning',
      `The ensemble has ${Math.max(1, voters)} voting member${voters < 2 ? '' : 's'}.`,
      'With fewer than three, locks stop when one member is down, and one lost disk loses them.',
      'Run three or five members.',
    )
  const epoch = Number(configured.zxid >> 32n)
  if (epoch >= MANY_LEADERS)
    add(
      'EPOCH',
      'warning',
      `ZooKeeper has had ${epoch} leaders. Tokens have room for ${LAST_LEADER}.`,
      'After that nothing is granted any more.',
      'Move to a new ensemble, and raise the epoch.',
    )
  const members = await Promise.all(hosts.map((host) => memberOf(client, host, clock, call)))
  const bounds = new Set(members.flatMap(({ bounds }) => bounds ?? []))
  if (bounds.size > 1)
    add(
      'BOUNDS',
      'warning',
      `The members have different bounds for the time of a session: ${[...bounds].join('; ')}.`,
      'A session that comes to another member may get less time than it had.',
      'Give all members the same tickTime, minSessionTimeout and maxSessionTimeout.',
    )
  for (const { host, failure, configuration } of members) {
    const most = Number(/^maxClientCnxns=(\d+)/m.exec(configuration ?? '')?.[1] ?? 0)
    if (failure !== undefined)
      add(
        'MEMBER_DOWN',
        'warning',
        `${host} does not answer: ${failure}`,
        'Another member that fails may be one too many.',
        'Start it again, or take it out of the list of hosts.',
      )
    else if (configuration === null)
      add(
        'WORDS_OFF',
        'note',
        `${host} does not answer the four-letter word conf.`,
        'So it cannot be read how many connections an address may have (maxClientCnxns).',
        'Add conf to 4lw.commands.whitelist, or look at its configuration.',
      )
    else if (most > 0 && most <= FEW_CONNECTIONS)
      add(
        'CONNECTIONS',
        'note',
        `${host} takes ${most} connections from one address (maxClientCnxns).`,
        'A process has one for each TTL in use, one more for reading, and one while it renews a session. Others behind the same address count as well.',
        'Raise maxClientCnxns where many processes share an address.',
      )
  }
  return findings
}

function isVoter(line: string): boolean {
  return line.startsWith('server.') && line.includes(':participant')
}

async function memberOf(client: ZooKeeperClient, host: string, clock: Clock, call: Call) {
  const alone = client.at(host)
  try {
    const [{ minMs, maxMs }, configuration] = await Promise.all([
      alone.negotiated(call),
      wordOf(client, host, clock, call),
    ])
    return { host, bounds: `${minMs} to ${maxMs} ms`, configuration }
  } catch (error) {
    return { host, failure: error instanceof Error ? error.message : String(error) }
  } finally {
    await alone.close()
  }
}

/** Null: it is not answered, or is not in the whitelist. */
function wordOf(client: ZooKeeperClient, host: string, clock: Clock, call: Call): Promise<string | null> {
  const socket = dial(host, client.options.tls)
  const answer = new Promise<string | null>((resolve) => {
    let text = ''
    const limit = judgeLate(clock, WORD_LIMIT_MS, () => socket.destroy())
    socket.on('data', (chunk: Buffer) => {
      text += chunk
    })
    socket.on('error', () => {})
    socket.on('close', () => {
      limit.cancel()
      resolve(text.includes('=') ? text : null)
    })
    socket.write('conf')
  })
  return unlessStopped(answer, () => call.onCancel(() => socket.destroy()))
}
