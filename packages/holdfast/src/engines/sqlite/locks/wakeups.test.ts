import assert from 'node:assert/strict'
import { chmodSync, existsSync, linkSync, mkdirSync, readdirSync, statSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { describe, test } from 'vitest'
import { type FullSession, SqliteRig, watch } from '../../../../test/sqlite/rig.ts'
import { publicIdOf } from '../../../base/ids.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import type { SqliteBackend } from './backend.ts'

interface Scene {
  readonly holder: { readonly client: SqliteBackend; readonly session: FullSession }
  readonly waiter: { readonly client: SqliteBackend; readonly session: FullSession }
  readonly held: ReturnType<typeof request>
  readonly asked: ReturnType<typeof request>
  readonly wait: ReturnType<typeof watch>
  release(): Promise<unknown>
}

/** One client holds what another waits for. */
async function waiting(rig: SqliteRig, holding = rig.open(), waitingClient = rig.open()): Promise<Scene> {
  const holder = { client: holding, session: await rig.session(holding) }
  const waiter = { client: waitingClient, session: await rig.session(waitingClient) }
  const [held, asked] = [request('x'), request('x')]
  await holder.session.tryAcquire(held, call())
  const wait = watch(enqueued(waiter.session, asked, call()))
  await rig.clock.settle()
  assert.equal(wait.state, 'pending')
  return {
    holder,
    waiter,
    held,
    asked,
    wait,
    release: () => holder.session.release(held, { keepForMs: 0 }, call()),
  }
}

describe('wake-ups', () => {
  test('a release wakes the next waiter over its socket, without any poll', async () => {
    await using rig = new SqliteRig()
    const { holder, waiter, wait, release } = await waiting(rig)
    await release()
    await rig.until('the waiter is granted', () => wait.state === 'fulfilled')
    assert.equal(holder.client.statistics.wakeUpsSent, 1)
    assert.equal(waiter.client.statistics.wakeUpsReceived, 1)
    assert.equal(waiter.client.statistics.polls, 0)
  })

  test('within one client no socket is needed', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const { wait, release } = await waiting(rig, client, client)
    await release()
    await rig.until('the waiter is granted', () => wait.state === 'fulfilled')
    assert.equal(client.statistics.wakeUpsSent, 0)
  })

  test('T28 G9 one release sends one message, however many wait', async () => {
    await using rig = new SqliteRig()
    const { holder, waiter, wait, release } = await waiting(rig)
    const others = Array.from({ length: 100 }, () => watch(enqueued(waiter.session, request('x'), call())))
    await rig.clock.settle()
    await release()
    await rig.until('the first is granted', () => wait.state === 'fulfilled')
    await rig.clock.settle()
    assert.equal(holder.client.statistics.wakeUpsSent, 1)
    assert(others.every((other) => other.state === 'pending'))
  })

  test('a wake-up that got lost is made up for by the next poll', async () => {
    await using rig = new SqliteRig()
    const elsewhere = rig.open({}, { socketFolder: join(rig.folder, 'elsewhere') })
    const { waiter, wait, release } = await waiting(rig, elsewhere)
    await release()
    await rig.clock.settle()
    assert.equal(wait.state, 'pending')
    await rig.clock.advance(waiter.client.info.expirySlackMs(1_000))
    assert.equal(wait.state, 'fulfilled')
    assert.equal(waiter.client.statistics.wakeUpsReceived, 0)
  })

  test('T51 a socket that vanished or was never there disturbs no process', async () => {
    await using rig = new SqliteRig()
    const { waiter, wait, release } = await waiting(rig)
    rig.sql('UPDATE waiters SET address = ?', rig.id())
    await release()
    await rig.clock.advance(waiter.client.info.expirySlackMs(1_000))
    assert.equal(wait.state, 'fulfilled')
  })

  test('an address from the file never leads out of the folder', async () => {
    await using rig = new SqliteRig()
    for (const address of ['../../etc/x', '/run/docker.sock', '', 'A'.repeat(500), "'; --"]) {
      const { holder, waiter, wait, release } = await waiting(rig)
      rig.sql('UPDATE waiters SET address = ?', address)
      await release()
      assert.equal(holder.client.statistics.wakeUpsSent, 0)
      await rig.clock.advance(waiter.client.info.expirySlackMs(1_000))
      assert.equal(wait.state, 'fulfilled')
      await rig.closeAll()
      rig.sql('DELETE FROM holders')
    }
  })

  test('T103 garbage and forgeries on the socket grant nothing and break nothing', async () => {
    await using rig = new SqliteRig()
    const { waiter, asked, wait, release } = await waiting(rig)
    const forgeries = [
      '\n\n\n',
      'x'.repeat(100_000),
      `${asked.attempt}\n`,
      `${publicIdOf(asked.attempt)}\n`.repeat(50),
      `${rig.id()}\n`,
      '\0\0\x00ff\n{"granted":true}\n',
      `${publicIdOf(asked.attempt)}`,
    ]
    for (const text of forgeries) await sendTo(rig, text)
    assert.equal(wait.state, 'pending')
    assert(waiter.client.statistics.wakeUpsReceived > 0, 'what looks like a message was looked into')
    await release()
    await rig.until('the waiter is granted', () => wait.state === 'fulfilled')
  })

  test('only the public half of an attempt travels', async () => {
    await using rig = new SqliteRig()
    const { asked, release } = await waiting(rig)
    const sent: string[] = []
    const listener = await listenIn(rig, sent)
    rig.sql('UPDATE waiters SET address = ?', listener.address)
    await release()
    await rig.until('the message is there', () => sent.join('').includes('\n'))
    assert.equal(sent.join(''), `${publicIdOf(asked.attempt)}\n`)
    listener.close()
  })

  test('a folder that others can enter is not used: then there is only polling', async () => {
    await using rig = new SqliteRig()
    const socketFolder = join(rig.folder, 'open to all')
    mkdirSync(socketFolder)
    chmodSync(socketFolder, 0o777)
    const { holder, waiter, wait, release } = await waiting(rig, rig.open(), rig.open({}, { socketFolder }))
    assert.deepEqual(readdirSync(socketFolder), [])
    await release()
    assert.equal(holder.client.statistics.wakeUpsSent, 0)
    await rig.clock.advance(waiter.client.info.expirySlackMs(1_000))
    assert.equal(wait.state, 'fulfilled')
  })

  test('a path that is too long for a socket means polling', async () => {
    await using rig = new SqliteRig()
    const socketFolder = join(rig.folder, 'x'.repeat(120))
    const { waiter, wait, release } = await waiting(rig, rig.open(), rig.open({}, { socketFolder }))
    await release()
    await rig.clock.advance(waiter.client.info.expirySlackMs(1_000))
    assert.equal(wait.state, 'fulfilled')
  })

  test('sockets are private, made at the first wait, and gone with their client', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client)
    await session.tryAcquire(request('y'), call())
    assert(!existsSync(rig.socketFolder), 'who does not wait does not listen')
    await waiting(rig)
    assert.equal(statSync(rig.socketFolder).mode & 0o777, 0o700)
    assert.equal(readdirSync(rig.socketFolder).length, 1)
    await rig.closeAll()
    await rig.until('the socket is gone', () => readdirSync(rig.socketFolder).length === 0)
  })

  test('sockets of processes that died are removed by the next process that listens; living ones stay', async () => {
    await using rig = new SqliteRig()
    const at = (file: string) => join(rig.socketFolder, file)
    const living = await waiting(rig)
    await leaveSocketBehind(rig, 'old.sock')
    await waiting(rig, rig.open({ namespace: 'next' }), rig.open({ namespace: 'next' }))
    await rig.until('the stale socket is gone', () => !existsSync(at('old.sock')))
    await living.release()
    await rig.until('the living one still hears', () => living.wait.state === 'fulfilled')
  })
})

/** Leaves a socket without a listener, as a killed process does. */
async function leaveSocketBehind(rig: SqliteRig, name: string): Promise<void> {
  const client = rig.open({ namespace: name })
  const before = new Set(readdirSync(rig.socketFolder))
  await waiting(rig, client, client)
  const socket = readdirSync(rig.socketFolder).find((file) => !before.has(file)) ?? ''
  // A second name keeps the file when its process closes the socket and removes the first.
  linkSync(join(rig.socketFolder, socket), join(rig.socketFolder, name))
  await client[Symbol.asyncDispose]()
  await rig.until('its process has gone', () => !existsSync(join(rig.socketFolder, socket)))
}

/** Connects to the only listener, writes, and waits until it has been read or refused. */
async function sendTo(rig: SqliteRig, text: string): Promise<void> {
  const [file = ''] = readdirSync(rig.socketFolder)
  const socket = connect(join(rig.socketFolder, file))
  socket.on('error', () => {})
  await new Promise<void>((resolve) => {
    socket.on('close', () => resolve())
    socket.end(text)
    socket.resume()
  })
}

async function listenIn(rig: SqliteRig, sent: string[]): Promise<{ address: string; close(): void }> {
  const address = rig.id()
  const server = createServer((socket) =>
    socket.setEncoding('latin1').on('data', (text) => sent.push(String(text))),
  )
  mkdirSync(rig.socketFolder, { recursive: true, mode: 0o700 })
  await new Promise<void>((resolve) => server.listen(join(rig.socketFolder, `${address}.sock`), resolve))
  return { address, close: () => void server.close() }
}
