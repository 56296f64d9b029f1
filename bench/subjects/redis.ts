import { redisSemaphore } from '../peers/redis-semaphore.ts'
import { redlock5 } from '../peers/redlock.ts'
import { redlockUniversalIoredis, redlockUniversalNodeRedis } from '../peers/redlock-universal.ts'
import { sesamecare } from '../peers/sesamecare.ts'
import { verrou } from '../peers/verrou.ts'
import { ioredis5, ioredis6, nodeRedis5, nodeRedis6 } from '../redis/clients.ts'
import { holdfast, holdfastFenced } from '../redis/holdfast.ts'
import { rawIoredis, rawNodeRedis } from '../redis/raw.ts'
import { startServers as startServersOf } from '../redis/server.ts'
import { tokenInAList } from '../redis/token-in-a-list.ts'
import { type Comparison, type Contest, contender, firstUrl, type Place, type Subject } from '../subject.ts'

const waiters = 32

export const startServers = () => startServersOf(1)

export function subject(place: Place): Subject {
  return {
    raw: "`SET NX PX` and a compare-and-delete script by its SHA, with the same client library and that library's defaults",
    seconds: 0.7,
    remarks: ['Every TTL is 15 s; renewal as by default'],
    comparisons: comparisons(place),
    contest: contest(place),
  }
}

function comparisons(place: Place): Comparison[] {
  const url = firstUrl(place)
  return [
    {
      setting: ioredis6.name,
      atOnce: [1, 64, 256],
      contenders: [
        contender(rawIoredis(ioredis6, url)),
        contender(holdfast(ioredis6, place)),
        contender(holdfastFenced(ioredis6, place)),
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
        contender(holdfast(nodeRedis6, place)),
        contender(holdfastFenced(nodeRedis6, place)),
        contender(redlockUniversalNodeRedis(url)),
      ],
    },
    {
      setting: ioredis5.name,
      contenders: [
        contender(rawIoredis(ioredis5, url)),
        contender(holdfast(ioredis5, place)),
        contender(holdfastFenced(ioredis5, place)),
      ],
    },
    {
      setting: nodeRedis5.name,
      contenders: [
        contender(rawNodeRedis(nodeRedis5, url)),
        contender(holdfast(nodeRedis5, place)),
        contender(holdfastFenced(nodeRedis5, place)),
      ],
    },
  ]
}

export function contest(place: Place): Contest {
  const url = firstUrl(place)
  return {
    waiters,
    holdMs: 1,
    floor:
      'The floor is one token in a list: `BLPOP` on a connection for each waiter, and pushed back; no owner, no TTL',
    takers: [
      tokenInAList(url, waiters),
      holdfast(ioredis6, place, `holdfast, ${ioredis6.name}`),
      holdfastFenced(ioredis6, place, `holdfast fenced, ${ioredis6.name}`),
      holdfast(nodeRedis6, place, `holdfast, ${nodeRedis6.name}`),
      redlock5([url]),
      sesamecare([url]),
      redisSemaphore(url),
      verrou(url),
      redlockUniversalIoredis(url),
    ],
  }
}
