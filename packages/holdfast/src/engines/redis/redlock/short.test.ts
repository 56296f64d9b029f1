/** The short scripts of a node answer, and leave behind, what the whole script does. */
import assert from 'node:assert/strict'
import { connectRedis, type RespClient, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
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
  beforeEach(() => wire.call('FLUSHALL'))

  /** The answer, and what the two keys are afterwards; times of grants are of this moment. */
  async function outcomeOf(source: string, args: readonly string[], prepare: readonly string[][]) {
    await wire.call('FLUSHALL')
    for (const command of prepare) await wire.call(...(command as [string, ...string[]]))
    const answer = await wire
      .call('EVAL', source, '2', session, lock, ...args)
      .catch((error: Error) => error.message)
    const isString = (await wire.call('TYPE', lock)) === 'string'
    const left = Number(await wire.call('PTTL', lock))
    const rest = [
      isString ? await wire.call('GET', lock) : isString,
      left > 30_000,
      await wire.call('HGETALL', session).catch(() => 'another type'),
    ]
    return JSON.stringify([answer, ...rest])
      .replaceAll(/\d{10}\.\d+/g, 'now')
      .replaceAll(/\b(60000|5\d{4})\b/g, 'all')
  }

  const open = ['HSET', session, 'ttl', '60000', 'holder', 'ada']
  const held = ['SET', lock, mine, 'PX', '60000']
  const states: Readonly<Record<string, readonly string[][]>> = {
    'nothing is held': [open],
    'it is held by this attempt': [open, ['SET', lock, mine, 'PX', '20000']],
    'it is held by another grant of this attempt': [
      open,
      ['SET', lock, `${owner}0|1.000003|${details}`, 'PX', '60000'],
    ],
    'it is held with a lock-delay': [open, ['SET', lock, `${owner}5|1.000002|${details}`, 'PX', '60000']],
    'another attempt holds it': [
      open,
      ['SET', lock, `hfr1|other|session|0|1.000002|${details}`, 'PX', '60000'],
    ],
    'a foreign client holds it': [open, ['SET', lock, 'foreign', 'PX', '60000']],
    'the lock has another type': [open, ['HSET', lock, 'a', 'b']],
    'there is no session': [held],
    'the session has another type': [['SET', session, 'text'], held],
    'the attempt was abandoned': [open, ['HSET', session, owner, 'abandoned']],
  }

  describe.each(Object.entries(states))('T108 when %s', (_, prepare) => {
    test('a vote', async () => {
      const whole = await outcomeOf(
        claimsScript.source,
        [runId, 'acquire', owner, '60000', '0', details, ''],
        prepare,
      )
      assert.equal(await outcomeOf(voteScript.source, [runId, owner, '60000', details], prepare), whole)
    })

    test('a release', async () => {
      const whole = await outcomeOf(claimsScript.source, ['', 'release', owner, '0', '1.000002'], prepare)
      assert.equal(await outcomeOf(releaseScript.source, [`${owner}0|1.000002|`], prepare), whole)
    })
  })

  test('G1 another process than the one that is meant votes for nothing', async () => {
    const answer = await outcomeOf(voteScript.source, ['0'.repeat(40), owner, '60000', details], [open])
    assert(answer.startsWith('[[],false,false'), answer)
  })

  test('a server that refuses every write says so in its own words', async () => {
    await wire.call('HSET', session, 'ttl', '60000')
    await wire.call('REPLICAOF', '127.0.0.1', '1')
    try {
      const args = [runId, owner, '60000', details]
      await assert.rejects(
        wire.call('EVAL', voteScript.source, '2', session, lock, ...args),
        /READONLY|MASTERDOWN/,
      )
    } finally {
      await wire.call('REPLICAOF', 'NO', 'ONE')
    }
  })
})
