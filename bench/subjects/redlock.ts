import { startRedisNodes } from 'holdfast-lab/servers'
import { redlock5 } from '../peers/redlock.ts'
import { sesamecare } from '../peers/sesamecare.ts'
import { pinApart } from '../pinning.ts'
import { ioredis6, nodeRedis6 } from '../redis/clients.ts'
import { holdfastRedlock } from '../redis/holdfast.ts'
import { rawOnMajority } from '../redis/raw.ts'
import { versionOf } from '../redis/server.ts'
import { contender, type Subject } from '../subject.ts'

const nodes = 5

export async function subject(): Promise<Subject> {
  const cluster = await startRedisNodes(nodes)
  const [first] = cluster.members
  const version = first === undefined ? '' : await versionOf(first)
  const pinning = pinApart(cluster.members.map(({ pid }) => pid))
  const urls = cluster.members.map(({ url }) => url)
  return {
    raw: `\`SET NX PX\` and a compare-and-delete script on all ${nodes} nodes at once, a majority awaited; the ratios are to redlock 5`,
    seconds: 0.7,
    remarks: [
      `${nodes} times Redis ${version} on this machine, without persistence`,
      pinning.words,
      'Every TTL is 15 s; renewal as by default',
    ],
    comparisons: [
      {
        setting: `${nodes} nodes`,
        contenders: [
          contender(redlock5(urls)),
          contender(sesamecare(urls)),
          contender(holdfastRedlock(ioredis6, urls, `holdfast, ${ioredis6.name}`)),
          contender(holdfastRedlock(nodeRedis6, urls, `holdfast, ${nodeRedis6.name}`)),
          contender(rawOnMajority(ioredis6, urls, `raw commands, ${ioredis6.name}`)),
        ],
      },
    ],
    async close() {
      pinning.undo()
      await cluster.stop()
    },
  }
}
