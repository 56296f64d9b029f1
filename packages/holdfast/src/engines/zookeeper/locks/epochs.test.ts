/** ZooKeeper's epoch, which grows with each leader, and for which tokens have 16 bits. A proxy puts another one into all answers of a real server. */
import { connect, createServer, type Socket } from 'node:net'
import { waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openSession, Rig } from '../../../../test/zookeeper/rig.ts'
import { onPackets } from '../../../../test/zookeeper/torture.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'

describe.runIf(wanted('zookeeper'))('the epoch of ZooKeeper', () => {
  const stack = new AsyncDisposableStack()
  let rig: Rig
  let epoch = 0n
  let host = ''
  beforeAll(async () => {
    rig = stack.use(await Rig.start())
    const [member] = rig.cluster.members
    const sockets = new Set<Socket>()
    const server = createServer((client) => {
      const upstream = connect(member?.port ?? 0, member?.host)
      for (const socket of [client, upstream]) sockets.add(socket.on('error', () => {}))
      client.pipe(upstream).on('close', () => client.destroy())
      let isAnswer = false
      onPackets(upstream, (packet) => {
        client.write(Buffer.concat([lengthOf(packet), isAnswer ? forged(packet) : packet]))
        isAnswer = true
      })
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    stack.defer(() => {
      for (const socket of sockets) socket.destroy()
      server.close()
    })
    const address = server.address()
    host = `127.0.0.1:${typeof address === 'object' ? address?.port : 0}`
  })
  afterAll(() => stack.disposeAsync())

  const lengthOf = ({ length }: Buffer) => {
    const bytes = Buffer.alloc(4)
    bytes.writeInt32BE(length)
    return bytes
  }
  /** Its number of the transaction, wherever it stands in the answer. */
  const forged = (packet: Buffer): Buffer => {
    const real = Buffer.from(packet.subarray(4, 12))
    const zxid = real.readBigInt64BE()
    if (zxid > 0n)
      for (let at = packet.indexOf(real); at >= 0; at = packet.indexOf(real, at + 8))
        packet.writeBigInt64BE(zxid + (epoch << 32n), at)
    return packet
  }
  const claims = async () => (await rig.remains()).filter((path) => !/\/s\//.test(path))

  test('G2 from 65,536 on nothing is granted, also not to one who waits by then: it is told why, and no claim is left', async () => {
    epoch = 65_535n
    const [backend, direct] = [await rig.backend({ hosts: [host] }), await rig.backend()]
    const [session, other] = [await openSession(backend), await openSession(direct)]
    const last = await session.tryAcquire(request('last'), call())
    expect(last.kind === 'granted' && last.grant.token).toBeGreaterThan(2n ** 51n)
    const held = await other.tryAcquire(request('x'), call())
    const waiting = enqueued(session, request('x'), call()).catch((error: unknown) => error)
    const waits = async () => (await direct.inspect('x', call()))?.waiters.length === 1 || null
    await waitFor('it waits', waits)
    const before = await claims()
    epoch = 65_536n
    const refused = { code: 'UNSUPPORTED', message: expect.stringContaining('raise the epoch') }
    await expect(session.tryAcquire(request('y'), call())).rejects.toMatchObject(refused)
    expect(await claims()).toEqual(before)
    if (held.kind === 'granted') await other.release(held.grant, { keepForMs: 0 }, call())
    expect(await waiting).toMatchObject(refused)
    expect((await claims()).filter((path) => path.includes('/n/'))).toHaveLength(1)
    const free = await other.tryAcquire(request('x'), call())
    expect(free.kind).toBe('granted')
  })

  test('from 50,000 on the diagnosis warns', async () => {
    const codes = async () => {
      const findings = await (await rig.backend({ hosts: [host] })).diagnose(call())
      return findings.filter(({ code }) => code.endsWith('EPOCH')).map(({ severity }) => severity)
    }
    epoch = 49_999n
    expect(await codes()).toEqual([])
    epoch = 50_000n
    expect(await codes()).toEqual(['warning'])
  })
})
