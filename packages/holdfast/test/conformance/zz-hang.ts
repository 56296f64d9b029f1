import { backendCases } from '../../src/testing/describe-backend.ts'
import { PostgresStage } from './zz-world.ts'
import { libraries } from '../postgres/clients.ts'
import { execFileSync } from 'node:child_process'
const ways = libraries.flatMap((library) => (['directly', 'pooler'] as const).map((through) => ({ library, through, time: 'shared' as const })))
const pending = new Map<string, number>()
const q = (port: number, db: string, sql: string) => execFileSync('psql', ['-X','-A','-t','-h','127.0.0.1','-p',String(port),'-U','postgres','-d',db,'-c',sql]).toString()
let last = ''; let same = 0
const stages: any[] = []
process.on('unhandledRejection', (e) => console.log('UNHANDLED', e))
setInterval(() => {
  const line = stages.map((s) => { const d = s.debug(); return JSON.stringify([d.time, d.traffic, d.busy]) }).join('\n')
  console.log(new Date().toISOString(), pending.size, '\n' + line)
  same = line === last ? same + 1 : 0
  if (same >= 2 && stages.length === 4) {
    console.log([...pending.keys()].join(' | '))
    for (const s of stages) { const d = s.debug(); if (d.time.players === 0) continue
    console.log(q(d.server.port,'postgres',"select pid,state,wait_event_type,wait_event,left(query,60), clock_timestamp()-query_start from pg_stat_activity where datname is not null and state <> 'idle'"), q(d.server.port,'postgres',"select state,count(*) from pg_stat_activity group by 1"))
    if (d.bouncer) { console.log(q(d.bouncer.port,'pgbouncer','SHOW POOLS')); console.log(d.bouncer.log().split('\n').filter((l: string) => /WARN|ERR|closing/.test(l)).slice(-8).join('\n')) } }
    process.exit(1)
  }
  last = line
}, 5000)
const t = performance.now()
await Promise.all(ways.map(async (way) => {
  const stage = await PostgresStage.start(way); stages.push(stage)
  let running = 0; const waiting: (() => void)[] = []
  await Promise.all(backendCases().filter(c => c.rule !== 'C50').map(async (c) => {
    const key = `${c.rule} ${way.library.name} ${way.through}`
    if (running >= 24) await new Promise<void>((r) => waiting.push(r)); else running++
    pending.set(key, 1)
    const world = await stage.world()
    try { await c.run(world, ['watch']) } catch (e) { console.log(key, String(e).slice(0, 200)) }
    await world.close()
    pending.delete(key); const n = waiting.shift(); if (n) n(); else running--
  }))
  console.log('done', way.library.name, way.through, performance.now() - t)
}))
console.log('all done', performance.now() - t)
process.exit(0)
