/** A session that has given up an attempt keeps the short way for all others, and the attempt stays given up. */
import { plantedSchema } from 'holdfast-lab/bugs'
import { startPostgres, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { applySql } from '../../../../test/postgres/requests.ts'
import { call, exclusive, openSession, Stage } from '../../../../test/postgres/stage.ts'

describe.runIf(wanted('postgres'))('postgres marks', () => {
  test('T73 what was abandoned is not granted, one by one or in a batch, and the rest does not pay for it', async () => {
    await using server = await startPostgres()
    await using stage = new Stage(server.url)
    const session = await openSession(await stage.backend())
    const givenUp = exclusive('given-up')
    await session.abandon(givenUp, call())
    const operator = await stage.operator()
    // Whatever leaves the short way fails from now on.
    await operator.query('ALTER FUNCTION holdfast.settle RENAME TO settle_is_not_here')
    const grantOf = (name: string) => session.tryAcquire(exclusive(name), call())
    expect(await grantOf('alone')).toMatchObject({ kind: 'granted' })
    const together = await Promise.all(['a', 'b', 'c'].map(grantOf))
    expect(together.map(({ kind }) => kind)).toEqual(['granted', 'granted', 'granted'])
    await expect(session.tryAcquire(givenUp, call())).rejects.toThrow('settle')
    const mixed = ['d', 'e'].map(grantOf)
    await expect(Promise.all([session.tryAcquire(givenUp, call()), ...mixed])).rejects.toThrow('settle')
    await Promise.allSettled(mixed)
    await operator.query('ALTER FUNCTION holdfast.settle_is_not_here RENAME TO settle')
    expect(await session.tryAcquire(givenUp, call())).toEqual({ kind: 'busy' })
  })

  /** Whether a renewal of the session could run while an abandon has not committed yet. */
  async function isFreeDuringAbandon(schema: string, surroundings = {}): Promise<boolean> {
    await using server = await startPostgres()
    await using stage = new Stage(server.url)
    const session = await openSession(await stage.backend({ schema }, surroundings))
    // The first abandon of a session writes to its row; later ones only lock it.
    await session.abandon(exclusive('x'), call())
    const [abandoning, renewing] = [await stage.operator(), await stage.operator()]
    await abandoning.query('BEGIN')
    await abandoning.query(applySql(schema, [{ op: 'a', name: 'x', attempt: 'attempt', session: 1, ms: 0 }]))
    const { rows } = await renewing.query(`SELECT no FROM ${schema}.sessions FOR NO KEY UPDATE SKIP LOCKED`)
    await abandoning.query('COMMIT')
    return rows.length > 0
  }

  test('T66 an abandon holds the row of its session until its commit', async () => {
    expect(await isFreeDuringAbandon('locked')).toBe(false)
  })

  test('T66 planted: where only sessions that are over are locked, a renewal runs during an abandon', async () => {
    const { schema, ...planted } = plantedSchema('T66-unlocked')
    expect(await isFreeDuringAbandon(schema, planted)).toBe(true)
  })
})
