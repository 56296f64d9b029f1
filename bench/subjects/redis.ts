import { startRedis } from 'holdfast-lab/servers'
import { redisSemaphore } from '../peers/redis-semaphore.ts'
import { redlock5 } from '../peers/redlock.ts'
import { redlockUniversalIoredis, redlockUniversalNodeRedis } from '../peers/redlock-universal.ts'
import { sesamecare } from '../peers/sesamecare.ts'
import { verrou } from '../peers/verrou.ts'
import { pinApart } from '../pinning.ts'
import { ioredis5, ioredis6, nodeRedis5, nodeRedis6 } from '../redis/clients.ts'
import { holdfast, holdfastFenced } from '../redis/holdfast.ts'
import { rawIoredis, rawNodeRedis } from '../redis/raw.ts'
import { versionOf } from '../redis/server.ts'
import { tokenInAList } from '../redis/token-in-a-list.ts'
import { type Comparison, type Contest, contender, type Subject } from '../subject.ts'

const waiters = 32

export async function subject(): Promise<Subject> {
  const server = await startRedis()
  const version = await versionOf(server)
  const pinning = pinApart([server.pid])
  return {
    raw: "`SET NX PX` and a compare-and-delete script by its SHA, with the same client library and that library's defaults",
    seconds: 0.7,
    remarks: [
      `One Redis ${version} on this machine, without persistence`,
      pinning.words,
      'Every TTL is 15 s; renewal as by default',
    ],
    comparisons: comparisons(server.url),
    contest: contest(server.url),
    async close() {
      pinning.undo()
      await server.stop()
    },
  }
}

function comparisons(url: string): Comparison[] {
  return [
    {
      setting: ioredis6.name,
      atOnce: [1, 64, 256],
      contenders: [
        contender(rawIoredis(ioredis6, url)),
        contender(holdfast(ioredis6, url)),
        contender(holdfastFenced(ioredis6, url)),
        contender(redlock5([url])),
        contender(sesamecare([url])),
        contender(redisSemaphore(url)),
        contender(verrou(url)),
        contender(redlockUniversalIoredis(url)),
      ],
    },
    {
      setting: nodeRedis6.name,
      atOnce: [1, 64, 256],
      contenders: [
        contender(rawNodeRedis(nodeRedis6, url)),
        contender(holdfast(nodeRedis6, url)),
        contender(holdfastFenced(nodeRedis6, url)),
        contender(redlockUniversalNodeRedis(url)),
      ],
    },
    {
      setting: ioredis5.name,
      contenders: [
        contender(rawIoredis(ioredis5, url)),
        contender(holdfast(ioredis5, url)),
        contender(holdfastFenced(ioredis5, url)),
      ],
    },
    {
      setting: nodeRedis5.name,
      contenders: [
        contender(rawNodeRedis(nodeRedis5, url)),
        contender(holdfast(nodeRedis5, url)),
        contender(holdfastFenced(nodeRedis5, url)),
      ],
    },
  ]
}

export function contest(url: string): Contest {
  return {
    waiters,
    holdMs: 1,
    floor:
      'The floor is one token in a list: `BLPOP` on a connection for each waiter, and pushed back; no owner, no TTL',
    takers: [
      tokenInAList(url, waiters),
      holdfast(ioredis6, url, `holdfast, ${ioredis6.name}`),
      holdfastFenced(ioredis6, url, `holdfast fenced, ${ioredis6.name}`),
      holdfast(nodeRedis6, url, `holdfast, ${nodeRedis6.name}`),
      redlock5([url]),
      sesamecare([url]),
      redisSemaphore(url),
      verrou(url),
      redlockUniversalIoredis(url),
    ],
  }
}
