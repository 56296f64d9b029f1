import assert from 'node:assert/strict'
import { DatabaseSync } from 'node:sqlite'
import { describe, test } from 'vitest'
import { SqliteRig, watch } from '../../../../test/sqlite/rig.ts'
import { callWith } from '../../../base/aborting.ts'
import { systemClock } from '../../../base/clock.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { systemRandom } from '../../../base/ids.ts'
import { listAll } from '../../../kit/backend-kit.ts'
import { call, permits, request } from '../../../testing/conformance/requests.ts'
import { Database } from './database.ts'
import { prepareStatements } from './statements.ts'
import { noStatistics } from './statistics.ts'
import { Writer } from './writer.ts'

const isNotApplied = (error: unknown) =>
  isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'not-applied'

/** Another process that is in the middle of a transaction. */
function occupy(rig: SqliteRig): { leave(): void } {
  const connection = new DatabaseSync(rig.path)
  connection.exec('BEGIN IMMEDIATE')
  return {
    leave() {
      connection.exec('ROLLBACK')
      connection.close()
    },
  }
}

/** The way to the file without the rest of the backend. */
function bare(rig: SqliteRig) {
  const connection = new DatabaseSync(rig.path)
  const database = new Database(connection, 'normal', noStatistics())
  const sql = prepareStatements(database)
  const { clock } = rig
  const writer = new Writer({ database, sql, clock, random: systemRandom }, () => {})
  return { connection, database, writer }
}

describe('many requests at once', () => {
  test('64 acquires leave in one transaction, and 64 releases in another', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client)
    await session.tryAcquire(request('first, for the reservation'), call())
    const asked = Array.from({ length: 64 }, (_, index) => request(`item ${index}`))
    const before = client.statistics.transactions
    const results = await Promise.all(asked.map((each) => session.tryAcquire(each, call())))
    assert(results.every((result) => result.kind === 'granted'))
    assert.equal(client.statistics.transactions - before, 1)
    await Promise.all(asked.map((each) => session.release(each, { keepForMs: 0 }, call())))
    assert.equal(client.statistics.transactions - before, 2)
  })

  test('a request that comes alone does not wait for company', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client)
    const before = client.statistics.transactions
    const result = watch(session.tryAcquire(request('x'), call()))
    for (let turn = 0; turn < 10; turn++) await null
    assert.equal(result.state, 'fulfilled', 'answered within microtasks')
    assert.equal(client.statistics.transactions - before, 2, 'one for the first tokens, one for itself')
  })

  test('an uncontended acquire costs three statements, and its release one', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client)
    const cost = async () => {
      const before = client.statistics.statements
      const asked = request('x')
      await session.tryAcquire(asked, call())
      await session.release(asked, { keepForMs: 0 }, call())
      return client.statistics.statements - before
    }
    await cost()
    assert.equal(await cost(), 4, 'look, insert, count; delete')
  })

  test('each has its own answer: a mismatch fails alone', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session()
    await session.tryAcquire(permits('three', 1, 3), call())
    const [one, other, third, fourth] = await Promise.allSettled([
      session.tryAcquire(request('x'), call()),
      session.tryAcquire(permits('three', 1, 5), call()),
      session.tryAcquire(request('x'), call()),
      session.tryAcquire(permits('three', 2, 3), call()),
    ])
    assert(one.status === 'fulfilled' && one.value.kind === 'granted')
    assert(other.status === 'rejected' && isHoldfastError(other.reason, 'CAPACITY_MISMATCH'))
    assert(third.status === 'fulfilled' && third.value.kind === 'busy')
    assert(fourth.status === 'fulfilled' && fourth.value.kind === 'granted')
  })
})

describe('a loop that never waits for anything else', () => {
  test('lets the timers of the process have their turn', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session(rig.open({ clock: systemClock }))
    let ticks = 0
    const timer = setInterval(() => ticks++, 5)
    for (let turns = 0; ticks < 3 && turns < 50_000; turns++) {
      const asked = request('x')
      await session.tryAcquire(asked, call())
      await session.release(asked, { keepForMs: 0 }, call())
    }
    clearInterval(timer)
    assert(ticks >= 3, `${ticks} ticks`)
  })
})

describe('when another process has the write lock', () => {
  test('a call goes on when it is free, and the event loop is not blocked meanwhile', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client)
    const other = occupy(rig)
    const result = watch(session.tryAcquire(request('x'), call()))
    await rig.clock.advance(200)
    assert.equal(result.state, 'pending')
    const { busyRetries } = client.statistics
    assert(
      busyRetries >= 20 && busyRetries <= 400,
      `it tries again, but does not spin: ${busyRetries} in 200 ms`,
    )
    other.leave()
    await rig.clock.advance(20)
    assert.equal(result.state, 'fulfilled')
  })

  test('G6 T14 a call that is cancelled meanwhile has not landed and never will; the others go on', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session()
    const other = occupy(rig)
    const controllers = [new AbortController(), new AbortController()]
    const [early, late] = controllers.map(({ signal }, index) =>
      watch(session.tryAcquire(request(`cancelled ${index}`), callWith(signal))),
    )
    const patient = watch(session.tryAcquire(request('patient'), call()))
    await rig.clock.settle()
    const behind = watch(session.tryAcquire(request('behind'), callWith(controllers[1]?.signal)))
    for (const controller of controllers) controller.abort(new Error('no longer needed'))
    await rig.clock.settle()
    for (const each of [early, late, behind]) assert(each?.state === 'rejected' && isNotApplied(each.error))
    assert.equal(patient.state, 'pending')
    other.leave()
    await rig.clock.advance(20)
    assert.equal(patient.state, 'fulfilled')
    assert.deepEqual(
      rig.sql('SELECT name FROM holders').map((row) => row.name),
      ['patient'],
    )
  })

  test('T66 a transaction judges by the time at which it has the lock, not by when it asked for it', async () => {
    await using rig = new SqliteRig()
    rig.open()
    const { writer, connection, database } = bare(rig)
    const begin = database.begin.bind(database)
    database.begin = () => {
      rig.clock.block(5_000)
      return begin()
    }
    const askedMs = rig.clock.monotonicMs()
    const judgedMs = await writer.write(call(), (tx) => tx.nowMs)
    assert.equal(judgedMs, askedMs + 5_000)
    connection.close()
  })

  test('reads do not wait', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client)
    await session.tryAcquire(request('x'), call())
    const other = occupy(rig)
    assert.equal((await listAll(client, '', call())).length, 1)
    assert.notEqual(await client.attachSession(session.handle, call()), null)
    other.leave()
  })

  test('the end of the client ends the calls', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client)
    const other = occupy(rig)
    const stalled = watch(session.tryAcquire(request('x'), call()))
    await rig.clock.settle()
    const behind = watch(session.tryAcquire(request('y'), call()))
    await client[Symbol.asyncDispose]()
    await rig.clock.settle()
    for (const each of [stalled, behind])
      assert(each.state === 'rejected' && isHoldfastError(each.error, 'CLOSED'))
    other.leave()
    assert.equal(rig.clock.pendingTimers, 0)
  })
})

describe('when writing fails', () => {
  test('G11 an error inside the transaction undoes all of it, and says so to all callers', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session()
    await session.tryAcquire(request('first, for the reservation'), call())
    rig.sql(`CREATE TRIGGER fire BEFORE INSERT ON holders WHEN new.name = 'fire'
      BEGIN SELECT RAISE(ABORT, 'the disk is on fire'); END`)
    const results = await Promise.allSettled(
      ['a', 'fire', 'b'].map((name) => session.tryAcquire(request(name), call())),
    )
    for (const result of results) {
      assert(result.status === 'rejected' && isNotApplied(result.reason))
      assert.match(result.reason.message, /the disk is on fire/)
    }
    assert.equal(rig.rows().holders, 1)
    assert.equal((await session.tryAcquire(request('a'), call())).kind, 'granted')
  })

  test('G11 a full disk is no grant', async () => {
    await using rig = new SqliteRig()
    rig.open()
    const { writer, connection } = bare(rig)
    const full = connection.prepare('PRAGMA page_count').get()?.page_count
    connection.exec(`PRAGMA max_page_count = ${full}`)
    const filling = writer.write(call(), (tx) => tx.sql.close.run('default', 'x'.repeat(50_000), 1, 1))
    await assert.rejects(filling, (error) => isNotApplied(error) && /full/.test(String(error)))
    connection.close()
  })

  test('G11 a commit that fails is reported as unknown, unless it certainly did not happen', async () => {
    await using rig = new SqliteRig()
    rig.open()
    for (const [errcode, outcome] of [
      [10, 'unknown'],
      [13, 'unknown'],
      [5, 'not-applied'],
    ] as const) {
      const { writer, connection, database } = bare(rig)
      database.commit = () => {
        throw Object.assign(new Error('no'), { errcode })
      }
      let told = false
      const writing = writer.write(call(), (tx) => {
        tx.afterCommit.push(() => {
          told = true
        })
        return tx.sql.close.run('default', 'x', 1, 1e9)
      })
      await assert.rejects(writing, (error) => {
        return isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === outcome
      })
      assert.equal(told, false)
      connection.close()
      assert.equal(rig.rows().names, 0, 'it was undone')
    }
  })
})
