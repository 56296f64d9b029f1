/** A node that is away for long: what its client keeps for it meanwhile must not grow with what the others do. */
import assert from 'node:assert/strict'
import { redisCall, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, test } from 'vitest'
import { libraries } from '../../../../test/redis/clients.ts'
import { type Nodes, startNodes } from '../../../../test/redlock/nodes.ts'
import { call, eventually, hold, RedlockStage } from '../../../../test/redlock/stage.ts'

const CYCLES = 40

describe.runIf(wanted('redis'))('redlock: a node that is away', () => {
  let nodes: Nodes
  beforeAll(async () => {
    nodes = await startNodes({ count: 3 })
  })
  afterEach(() => nodes.endClients())
  afterAll(() => nodes?.stop())

  for (const library of libraries)
    test(`what was certainly never asked of it is not told to it later: ${library.name}`, async () => {
      const stage = new RedlockStage(nodes)
      const session = await stage.session('ada', { library })
      await hold(session, 'warm up')
      await nodes.flush()
      const away = stage.proxy(2)
      away.refuse()
      away.reset()
      await eventually('its client has noticed', () => away.connections === 0)
      // The first may meet a client that has not given up yet; from then on it is known to be away.
      await stage.answered(release(await hold(session, 'noticing')), [2])
      const received = async () => {
        const stats = String(await redisCall(stage.server(2), 'INFO', 'commandstats'))
        return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0)
      }
      const before = await received()
      for (let cycle = 0; cycle < CYCLES; cycle++)
        assert.equal(await release(await hold(session, `x/${cycle}`)), 'released')
      away.heal()
      // Comes after everything that was kept for it.
      await nodes.flush()
      const sent = (await received()) - before
      assert(sent < CYCLES / 2, `${sent} commands were kept for it during ${CYCLES} locks`)

      function release(held: Awaited<ReturnType<typeof hold>>) {
        return session.release(held, { keepForMs: 0 }, call())
      }
    })
})
