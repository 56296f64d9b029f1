/**
 * BullMQ gives a job to a second worker when the first one seems to be dead. If it was only frozen, both do it.
 *
 *     node examples/bullmq/main.ts
 */
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { Queue } from 'bullmq'
import { reach } from 'holdfast-lab/servers'
import { Redis } from 'ioredis'
import { Children, heard } from '../support/child.ts'
import { limitTime, startClaims } from '../support/claims.ts'
import type { Charge, Told } from './worker.ts'

const { say, check, mustLose, finish } = startClaims()
limitTime()

{
  await using server = await reach('redis')
  using children = new Children()
  const prefix = `holdfast-example-${randomBytes(6).toString('hex')}`
  const client = new Redis(server.url, { maxRetriesPerRequest: null })

  /** The first worker is frozen in its job until the second one has done it. */
  const chargeOnce = async (charge: Charge) => {
    const name = `${prefix}-${charge.order}`
    const queue = new Queue<Charge>(name, { connection: client })
    const start = async () => {
      const worker = children.start(join(import.meta.dirname, 'worker.ts'), [name, prefix, server.url])
      await heard<Told, 'ready'>(worker, 'ready')
      return worker
    }
    const first = await start()
    const frozen = heard<Told, 'about-to-charge'>(first, 'about-to-charge')
    await queue.add('charge', charge, { removeOnComplete: true })
    await frozen
    const second = await start()
    const overtaking = heard<Told, 'about-to-charge'>(second, 'about-to-charge')
    const overtaken = heard<Told, 'ended'>(second, 'ended')
    await overtaking
    second.stdin?.write('.')
    await overtaken
    const refused = heard<Told, 'refused'>(first, 'refused').then(
      () => true,
      () => false,
    )
    const awake = heard<Told, 'ended'>(first, 'ended')
    first.stdin?.write('.')
    await awake
    const charged = Number(await client.get(`${prefix}:charged:${charge.order}`))
    for (const worker of [first, second]) worker.kill('SIGKILL')
    await queue.obliterate({ force: true })
    await queue.close()
    return { charged, refused: await refused }
  }

  say('The job alone: BullMQ has locked it for the worker, until the worker freezes.')
  const alone = await chargeOnce({ order: 'order-1', cents: 4_200, how: 'job alone' })
  mustLose(`the customer is charged ${alone.charged / 4_200} times`, alone.charged === 8_400)

  say('\nWith a lease and a guard:')
  const guarded = await chargeOnce({ order: 'order-2', cents: 4_200, how: 'lease and guard' })
  check('the customer is charged once', guarded.charged === 4_200)
  check('Redis refused the worker that was frozen', guarded.refused)
  const keys = await client.keys(`*${prefix}*`)
  if (keys.length > 0) await client.del(keys)
  await client.quit()
}
finish()
