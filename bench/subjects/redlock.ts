import { redlock5 } from '../peers/redlock.ts'
import { sesamecare } from '../peers/sesamecare.ts'
import { ioredis6, nodeRedis6 } from '../redis/clients.ts'
import { holdfastRedlock } from '../redis/holdfast.ts'
import { rawOnMajority } from '../redis/raw.ts'
import { startServers as startServersOf } from '../redis/server.ts'
import { contender, type Place, type Subject } from '../subject.ts'

const nodes = 5

export const startServers = () => startServersOf(nodes)

export function subject(place: Place): Subject {
  const { urls } = place
  return {
    raw: `\`SET NX PX\` and a compare-and-delete script on all ${nodes} nodes at once, a majority awaited; the ratios are to redlock 5`,
    seconds: 0.7,
    remarks: ['Every TTL is 15 s; renewal as by default'],
    comparisons: [
      {
        setting: `${nodes} nodes`,
        contenders: [
          contender(redlock5(urls)),
          contender(sesamecare(urls)),
          contender(holdfastRedlock(ioredis6, place, `holdfast, ${ioredis6.name}`)),
          contender(holdfastRedlock(nodeRedis6, place, `holdfast, ${nodeRedis6.name}`)),
          contender(rawOnMajority(ioredis6, urls, `raw commands, ${ioredis6.name}`)),
        ],
      },
    ],
  }
}
