import { execFileSync } from 'node:child_process'
import { renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { type Server, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { Rig } from '../../../../test/etcd/rig.ts'
import { createLocker } from '../../../locker/locker.ts'

describe.runIf(wanted('etcd'))('a restored snapshot', () => {
  test('G2 T75 a restored snapshot issues tokens again: a raised epoch makes them safe', async () => {
    await using rig = await Rig.start()
    const [member] = rig.cluster.members as readonly [Server]
    const etcdctl = (...parameters: string[]) =>
      execFileSync('etcdctl', ['--endpoints', member.url, ...parameters], {
        env: { ...process.env, ETCDCTL_API: '3' },
        stdio: 'ignore',
      })
    const tokenOf = async (epoch: number) => {
      await using locker = createLocker(await rig.backend({ epoch, issuer: 'shop' }))
      const lease = await locker.acquire('x')
      await lease.release()
      return lease.fence
    }
    const saved = join(member.folder, 'saved.db')
    etcdctl('snapshot', 'save', saved)
    let last = await tokenOf(0)
    for (let round = 0; round < 5; round++) last = await tokenOf(0)

    await member.kill()
    const data = join(member.folder, 'data')
    const peers = `http://127.0.0.1:${member.port}`
    etcdctl(
      ...['snapshot', 'restore', saved, '--data-dir', `${data}.restored`, '--name', member.name],
      ...['--initial-cluster', `${member.name}=${peers}`, '--initial-advertise-peer-urls', peers],
    )
    rmSync(data, { recursive: true })
    renameSync(`${data}.restored`, data)
    await member.restart()

    const again = await tokenOf(0)
    expect(again.token).toBeLessThan(last.token)
    const raised = await tokenOf(1)
    expect(raised.token).toBeGreaterThan(last.token)
  })
})
