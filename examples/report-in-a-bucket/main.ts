/**
 * A nightly report in a bucket, written once by twenty replicas: on a calm night, and when the replica that writes it is
 * stopped (SIGSTOP), is overtaken, and goes on.
 *
 *     node examples/report-in-a-bucket/main.ts
 */
import type { ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { reach } from 'holdfast-lab/servers'
import { Children, heard } from '../support/child.ts'
import { limitTime, startClaims } from '../support/claims.ts'
import { BUCKET, type Order, s3At, type Told } from './replica.ts'

const REPLICAS = 20

const { say, check, mustLose, finish } = startClaims()
limitTime()

const folder = mkdtempSync(join(tmpdir(), 'holdfast-report-in-a-bucket-'))
try {
  await using server = await reach('radosgw')
  using children = new Children()
  const s3 = s3At(server.url)
  await s3.createBucket({ Bucket: BUCKET })
  const textOf = async (Key: string) =>
    (await s3.getObject({ Bucket: BUCKET, Key })).Body?.transformToString()
  const replicas = Array.from({ length: REPLICAS }, (_, index) =>
    children.start(join(import.meta.dirname, 'replica.ts'), [
      ...[`replica-${index + 1}`, join(folder, 'locks.db'), server.url],
    ]),
  )
  await Promise.all(replicas.map((replica) => heard<Told, 'ready'>(replica, 'ready')))

  say(`A lease, and ${REPLICAS} replicas. The one at the report freezes, is overtaken, and goes on.`)
  const alone = await play(replicas, { night: '2026-11-13', way: 'lease' }, 'frozen')
  mustLose(`${alone.wrote.length} replicas wrote the report`, alone.wrote.length > 1)
  const last = await textOf('plain/2026-11-13.txt')
  mustLose('the report that is there is the one that came too late', last === `by ${alone.first}`)

  say('\nA lease and a guard, on a calm night.')
  const calm = await play(replicas, { night: '2026-11-14', way: 'lease and guard' }, 'calm')
  check(`${calm.wrote.join(' and ')} wrote the report, ${calm.found} found it done`, calm.wrote.length === 1)

  say('\nThe same, and the one at the report freezes, is overtaken, and goes on.')
  const frozen = await play(replicas, { night: '2026-11-15', way: 'lease and guard' }, 'frozen')
  check(
    `${frozen.wrote.join(' and ')} wrote the report, ${frozen.found} found it done`,
    frozen.wrote.length === 1,
  )
  check(`the bucket refused what ${frozen.first} wrote too late`, frozen.refused.includes(frozen.first))
  // How any program finds the data: the head says where it is.
  const { ptr } = JSON.parse((await textOf('report/2026-11-15.txt.head')) ?? '{}')
  check('the report that is there is the other one', (await textOf(ptr)) === `by ${frozen.wrote.join()}`)
} finally {
  rmSync(folder, { recursive: true, force: true })
}
finish()

/** All replicas wake up for a night. A `frozen` one is stopped just before it writes, and goes on when all others have ended. */
function play(replicas: readonly ChildProcess[], order: Order, fate: 'calm' | 'frozen') {
  const wrote: string[] = []
  const refused: string[] = []
  const result = { wrote, refused, found: 0, first: '' }
  let ended = 0
  return new Promise<typeof result>((resolve, reject) => {
    replicas.forEach((replica, index) => {
      const name = `replica-${index + 1}`
      const gone = () => reject(new Error(`${name} ended`))
      const listen = (told: Told) => {
        if (told.kind === 'ready') return
        if (told.kind === 'about-to-write') {
          result.first ||= name
          if (fate === 'frozen' && result.first === name) replica.kill('SIGSTOP')
          else replica.stdin?.write('.')
          return
        }
        replica.off('message', listen).off('exit', gone)
        if (told.outcome === 'found it done') result.found++
        else (told.outcome === 'wrote' ? wrote : refused).push(name)
        if (++ended === REPLICAS) resolve(result)
        else if (ended === REPLICAS - 1 && fate === 'frozen') {
          const stopped = replicas[Number(result.first.slice('replica-'.length)) - 1]
          stopped?.kill('SIGCONT')
          stopped?.stdin?.write('.')
        }
      }
      replica.on('message', listen).once('exit', gone)
      replica.send(order)
    })
  })
}
