/**
 * A primary and a replica behind one address, as a virtual address or Sentinel would give it. The replica follows through
 * a proxy, so it can be kept from learning what the primary has just granted.
 */
import { type FaultyProxy, startProxy } from '../../faults/index.ts'
import { redisCall, type Server, startRedis } from '../../servers/index.ts'
import type { Target } from './doors.ts'
import type { Faults } from './engine.ts'

interface Follower {
  readonly server: Server
  readonly link: FaultyProxy
}

export class RedisPair implements AsyncDisposable {
  /** Where the primary is, whichever it is. */
  readonly target: Target
  #primary: Server
  #follower: Follower | null = null

  private constructor(primary: Server) {
    this.#primary = primary
    this.target = { host: primary.host, port: primary.port }
  }

  static async start(): Promise<RedisPair> {
    return new RedisPair(await startRedis({ name: 'redis-primary' }))
  }

  readonly failOver: Faults['failOver'] = {
    holdBack: async () => {
      this.#follower ??= await follow(this.#primary)
      this.#follower.link.drop('down')
    },
    failOver: async () => {
      const follower = this.#follower
      if (follower === null) throw new Error('nothing was held back from a replica')
      this.#follower = null
      await this.#primary.kill()
      await redisCall(follower.server, 'REPLICAOF', 'NO', 'ONE')
      const dead = this.#primary
      this.#primary = follower.server
      this.target.port = follower.server.port
      await follower.link.close()
      await dead.stop()
      return 'the primary was killed, and a replica promoted that had not got the grant'
    },
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#follower?.link.close()
    await this.#follower?.server.stop()
    await this.#primary.stop()
  }
}

/** Resolves when the replica has all that the primary has. */
async function follow(primary: Server): Promise<Follower> {
  const link = await startProxy(primary)
  try {
    return { link, server: await startRedis({ name: 'redis-replica', replicaOf: link }) }
  } catch (error) {
    await link.close()
    throw error
  }
}
