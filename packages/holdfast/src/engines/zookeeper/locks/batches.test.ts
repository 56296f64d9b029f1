/** Batches of writes, and reads beside them. The member is played by a server in this process. */
import { createServer, type Socket } from 'node:net'
import { beforeEach, describe, expect, test } from 'vitest'
import { onPackets } from '../../../../test/zookeeper/torture.ts'
import { systemClock } from '../../../base/clock.ts'
import { call } from '../../../testing/conformance/requests.ts'
import { seededRandom } from '../../../testing/seeded-random.ts'
import { ZooKeeperClient } from '../client/index.ts'
import { frame } from '../client/jute.ts'
import { passwordOf } from '../client/password.ts'
import { Batches } from './batches.ts'

const [GET_DATA, SET_DATA, MULTI] = [4, 5, 14]
const stat = [1n, 7n, 0n, 0n, 1, 0, 0, 0n, 0, 0, 1n]
const write = (path: string) => () => [{ op: 'setData', path, data: '' } as const]

describe('a read beside a batch of writes', () => {
  let stack: AsyncDisposableStack
  beforeEach(() => {
    stack = new AsyncDisposableStack()
    return () => stack.disposeAsync()
  })

  /** `errors`: ZooKeeper's codes for the first requests of a kind; later ones are served. */
  async function batches(errors: { readonly [code: number]: readonly number[] }): Promise<Batches> {
    const sockets = new Set<Socket>()
    const left = new Map(Object.entries(errors).map(([code, given]) => [Number(code), [...given]]))
    const server = createServer((socket) => {
      sockets.add(socket.on('error', () => {}))
      let isConnected = false
      onPackets(socket, (packet) => {
        if (!isConnected) socket.write(frame([0, 30_000, 5n, passwordOf(5n), false]))
        else socket.write(answerTo(packet.readInt32BE(0), packet.readInt32BE(4), packet))
        isConnected = true
      })
    })
    const answerTo = (xid: number, code: number, packet: Buffer) => {
      const error = left.get(code)?.shift() ?? 0
      if (error !== 0) return frame([xid, 7n, error])
      if (code === GET_DATA) return frame([xid, 7n, 0, 'read', ...stat])
      if (code !== MULTI) return frame([xid, 7n, 0])
      const parts = [...packet.toString('latin1').matchAll(/\/n\d/g)].map(() => [SET_DATA, false, 0, ...stat])
      return frame([xid, 7n, 0, ...parts.flat(), -1, true, -1])
    }
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    stack.defer(() => {
      for (const socket of sockets) socket.destroy()
      server.close()
    })
    const address = server.address()
    const hosts = [`127.0.0.1:${typeof address === 'object' ? address?.port : 0}`]
    const client = new ZooKeeperClient('zookeeper', { hosts, acl: 'open' }, systemClock, seededRandom(1))
    stack.defer(() => client.close())
    return new Batches(await client.open(30_000, call()), systemClock)
  }

  test('T13 one that is refused (-127, throttled) does not make a write of the same batch that was applied look refused', async () => {
    const both = await batches({ [GET_DATA]: [-127] })
    const [read, other] = await Promise.all([
      both.commit('a', write('/n1'), call(), '/n1/data'),
      both.commit('b', write('/n2'), call()),
    ])
    expect(other).toMatchObject({ ok: true, position: 1 })
    expect(read).toMatchObject({ ok: true, position: 0 })
    await expect(read.ok && read.read).rejects.toMatchObject({ outcome: 'unknown' })
  })

  test('each write is built with its position, which is part of its token', async () => {
    const both = await batches({})
    const positions: number[] = []
    const told = (path: string) => (position: number) => {
      positions.push(position)
      return write(path)()
    }
    await Promise.all([both.commit('a', told('/n1'), call()), both.commit('b', told('/n2'), call())])
    expect(positions).toEqual([0, 1])
  })

  test.each([
    ['-118, session moved', -118],
    ['-127, throttled', -127],
  ])(
    'one that is answered beside a write that is refused (%s) says nothing of the write',
    async (_, error) => {
      const both = await batches({ [MULTI]: [error] })
      const refused = both.commit('a', write('/n1'), call(), '/n1/data')
      await expect(refused).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
      expect(await both.commit('a', write('/n1'), call())).toMatchObject({ ok: true })
    },
  )
})
