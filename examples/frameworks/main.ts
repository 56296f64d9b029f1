/**
 * Four servers, on Fastify, Express, Hono and NestJS, are told to stop (SIGTERM) while 50 clients send them orders. Orders that have
 * begun are finished, late ones get 503, and none gets 500.
 *
 *     node examples/frameworks/main.ts
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createLocker } from 'holdfast'
import { sqlite } from 'holdfast/sqlite'
import { Children, ended, heard } from '../support/child.ts'
import { limitTime, startClaims } from '../support/claims.ts'
import { type Answer, startClients } from './clients.ts'
import type { Told } from './orders.ts'

const { say, check, mustLose, finish } = startClaims()
limitTime()
const CLIENTS = 50
const DRAIN_MS = 600
const GRACE_MS = 10_000

say('Compiling the server of NestJS, because Node cannot strip its decorators …')
const compiler = join(dirname(createRequire(import.meta.url).resolve('typescript6/package.json')), 'bin/tsc')
const project = join(import.meta.dirname, 'nestjs/tsconfig.json')
const compiled = spawnSync(process.execPath, [compiler, '-p', project], { stdio: 'inherit' })
check('it compiles', compiled.status === 0)

const folder = mkdtempSync(join(tmpdir(), 'holdfast-frameworks-'))
const locks = join(folder, 'locks.db')
using children = new Children()

/** Starts a server, and stops it in the middle of its work. */
async function stop(program: string, drainMs: number) {
  const child = children.start(join(import.meta.dirname, program), [locks, `${drainMs}`])
  const { port } = await heard<Told, 'listening'>(child, 'listening')
  const clients = startClients(port, CLIENTS)
  await clients.busy
  const exit = ended(child)
  const toldAt = performance.now()
  child.kill('SIGTERM')
  const code = await exit
  const tookMs = performance.now() - toldAt
  return { code, tookMs, answers: await clients.answers }
}

const wasBrokenOff = ({ customer, text }: Answer) => customer !== 'slow' && text.includes('closed')

try {
  const servers = ['fastify.ts', 'express.ts', 'hono.ts', 'dist/nestjs/server.js']
  for (const program of servers) {
    const { code, tookMs, answers } = await stop(program, DRAIN_MS)
    const of = (status: number) => answers.filter((answer) => answer.status === status)
    say(
      `\n${program}: ${of(200).length} orders packed, ${of(503).length} sent elsewhere, ${Math.round(tookMs)} ms`,
    )
    check('every request was answered, with 200 or 503', of(200).length + of(503).length === answers.length)
    check(
      'late ones are told that it drains',
      of(503).some(({ text }) => text.includes('is draining')),
    )
    check('no order that had begun was broken off', !answers.some(wasBrokenOff))
    check(
      'but for the one that would take ten minutes',
      answers.some(({ customer, status }) => customer === 'slow' && status === 503),
    )
    check('it ended within drain and grace, with 0', code === 0 && tookMs < DRAIN_MS + GRACE_MS)
    await using locker = createLocker(sqlite({ path: locks }))
    check('nothing is left held', (await locker.list()).length === 0)
  }
  const control = await stop('express.ts', 0)
  mustLose('without a drain, orders that had begun are broken off', control.answers.some(wasBrokenOff))
} finally {
  rmSync(folder, { recursive: true, force: true })
}
finish()
