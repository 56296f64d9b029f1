import { cpSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { type Server, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { Rig } from '../../../../test/zookeeper/rig.ts'
import { createLocker } from '../../../locker/locker.ts'

describe.runIf(wanted('zookeeper'))('a restored backup', () => {
  test('G2 T75 restored data issues tokens again: a raised epoch makes them safe', async () => {
    await using rig = await Rig.start()
    const [member] = rig.cluster.members as readonly [Server]
    const tokenOf = async (epoch: number) => {
      const backend = await rig.backend({ epoch, issuer: 'shop' })
      await using locker = createLocker(backend, { ttlMs: 2_000 })
      const lease = await locker.acquire('x')
      await lease.release()
      return lease.fence
    }
    const [data, saved] = [join(member.folder, 'data'), join(member.folder, 'saved')]
    await tokenOf(0)
    await member.kill()
    cpSync(data, saved, { recursive: true })
    await member.restart()
    let last = await tokenOf(0)
    for (let round = 0; round < 5; round++) last = await tokenOf(0)

    await member.kill()
    rmSync(data, { recursive: true })
    cpSync(saved, data, { recursive: true })
    await member.restart()

    const again = await tokenOf(0)
    expect(again.token).toBeLessThan(last.token)
    const raised = await tokenOf(1)
    expect(raised.token).toBeGreaterThan(last.token)
  })
})
