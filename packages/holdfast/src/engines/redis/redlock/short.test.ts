/** The short scripts of a node answer, and leave behind, what the whole script does. */
import assert from 'node:assert/strict'
import { connectRedis, type RespClient, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { type Command, outcomeOf } from '../../../../test/redis/script-outcome.ts'
import { claimsScript, releaseScript, voteScript } from './scripts.ts'

const [session, lock, owner] = ['session', 'lock', 'hfr1|attempt|session|']
const details = '{"holder":"ada","ttlMs":60000}'
const mine = `${owner}0|1.000002|${details}`

describe.runIf(wanted('redlock'))('short scripts of a node', () => {
  let server: Server
  let wire: RespClient
  let runId: string
  beforeAll(async () => {
    server = await startRedis()
    wire = await connectRedis(server)
    runId = /run_id:(\w+)/.exec(String(await wire.call('INFO', 'server')))?.[1] ?? ''
  })
  afterAll(async () => {
    wire?.close()
    await server?.stop()
  })

  const ran = (source: string, args: readonly string[], prepare: readonly Command[]) =>
    outcomeOf(wire, { source, keys: [session, lock], args }, prepare)

  const open: Command = ['HSET', session, 'ttl', '60000', 'holder', 'ada']
  const held: Command = ['SET', lock, mine, 'PX', '60000']
  const states: Readonly<Record<string, readonly Command[]>> = {
    'nothing is held': [open],
    'it is held by this attempt': [open, ['SET', lock, mine, 'PX', '20000']],
    'it is held by another grant of this attempt': [
      open,
      ['SET', lock, `${owner}0|1.000003|${details}`, 'PX', '60000'],
    ],
    'it is held with a lock-delay': [open, ['SET', lock, `${owner}20000|1.000002|${details}`, 'PX', '60000']],
    'its lock-delay runs': [open, ['SET', lock, `${owner}60000|1.000002|${details}`, 'PX', '20000']],
    'it was kept closed': [open, ['SET', lock, 'hfr1|closed', 'PX', '20000']],
    'another attempt holds it': [
      open,
      ['SET', lock, `hfr1|other|session|0|1.000002|${details}`, 'PX', '60000'],
    ],
    'a foreign client holds it': [open, ['SET', lock, 'foreign', 'PX', '60000']],
    'the lock has another type': [open, ['HSET', lock, 'a', 'b']],
    'there is no session': [held],
    'the session has another type': [['SET', session, 'text'], held],
    'the attempt was abandoned': [open, ['HSET', session, owner, 'abandoned']],
    'an operator has ended it': [open, ['HSET', session, owner, 'force-released', `${owner}why`, 'stuck']],
    'the memory is full': [open, ['CONFIG', 'SET', 'maxmemory', '1']],
    'it is held, and the memory is full': [open, held, ['CONFIG', 'SET', 'maxmemory', '1']],
    'the server is a replica': [open, ['REPLICAOF', '127.0.0.1', '1']],
    'it is held, and the server is a replica': [open, held, ['REPLICAOF', '127.0.0.1', '1']],
  }

  describe.each(Object.entries(states))('T108 when %s', (_, prepare) => {
    test('a vote', async () => {
      const whole = await ran(
        claimsScript.source,
        [runId, 'acquire', owner, '60000', '0', details, ''],
        prepare,
      )
      assert.equal(await ran(voteScript.source, [runId, owner, '60000', details], prepare), whole)
    })

    test('a release', async () => {
      const whole = await ran(claimsScript.source, ['', 'release', owner, '0', '1.000002'], prepare)
      assert.equal(await ran(releaseScript.source, [`${owner}0|1.000002|`], prepare), whole)
    })
  })

  test('G1 another process than the one that is meant votes for nothing', async () => {
    const { answer, left } = JSON.parse(
      await ran(voteScript.source, ['0'.repeat(40), owner, '60000', details], [open]),
    )
    assert.deepEqual([answer, left.map(([key]: [string]) => key)], [[], [session]])
  })

  test('a server that refuses every write says so in its own words', async () => {
    const replica: Command = ['REPLICAOF', '127.0.0.1', '1']
    const outcome = await ran(voteScript.source, [runId, owner, '60000', details], [open, replica])
    assert.match(JSON.parse(outcome).answer, /READONLY|MASTERDOWN/)
  })
})
