import assert from 'node:assert/strict'
import { pino } from 'pino'
import { onTestFinished, test } from 'vitest'
import { createRig } from '../../test/rig.ts'
import { InvalidArgumentError } from '../base/errors.ts'
import { emit, eventKinds, hasListeners } from '../base/events.ts'
import { type Logger, logEvents } from './log.ts'

type Line = Record<string, unknown>

function pinoLines() {
  const lines: Line[] = []
  const logger = pino(
    { level: 'debug', base: null },
    { write: (line: string) => lines.push(JSON.parse(line)) },
  )
  return { lines, logger }
}

/** Lines of other levels, each with its level. */
function recorded(): { lines: [string, Line][]; logger: Logger } {
  const lines: [string, Line][] = []
  const at = (level: string) => (line: Line) => void lines.push([level, line])
  return { lines, logger: { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') } }
}

test('pino gets one line for each event, with the token as text', async () => {
  const { lines, logger } = pinoLines()
  const { stop } = logEvents(logger)
  onTestFinished(stop)
  const { locker, engine, clock } = createRig()
  const lease = await locker({ holder: 'me' }).acquire('invoices/7', { owner: 'order 7' })
  engine.deleteName('default', 'invoices/7')
  await clock.advance(6_000)
  const [acquired, renewed, lost] = lines
  assert.deepEqual(
    [acquired?.event, acquired?.level, acquired?.token, acquired?.holder, acquired?.owner],
    ['acquired', 20, lease.fence.token.toString(), 'me', 'order 7'],
  )
  assert.equal(acquired?.msg, 'holdfast: acquired: "invoices/7"')
  const levels = lines.map(({ event, level }) => [event, level])
  assert.deepEqual(levels, [
    ['acquired', 20],
    ['lost', 50],
    ['renewed', 20],
  ])
  assert.equal(lines.find(({ event }) => event === 'lost')?.reason, 'deleted')
  assert.ok(renewed !== undefined && lost !== undefined)
})

test('errors are a code and a message, and nothing else of them', () => {
  const { lines, logger } = recorded()
  const { stop } = logEvents(logger)
  onTestFinished(stop)
  const about = { backend: 'b', namespace: 'n', leases: 1, tookMs: 1 }
  const secret = Object.assign(new InvalidArgumentError('x', 'is wrong.'), { password: 'secret' })
  emit('renewal-failed', { ...about, error: secret })
  emit('renewal-failed', { ...about, error: new Error('planted') })
  const errors = lines.map(([, { error }]) => error)
  assert.deepEqual(errors, [
    { code: 'INVALID_ARGUMENT', message: secret.message },
    { code: null, message: 'planted' },
  ])
  assert.doesNotMatch(JSON.stringify(lines), /secret/)
})

test('levels: what may cost data is an error, what an operator should see a warning, the rest detail', () => {
  const { lines, logger } = recorded()
  const { stop } = logEvents(logger, { messageKey: 'message' })
  onTestFinished(stop)
  const levelOf = (kind: (typeof eventKinds)[number], event: object = {}) => {
    emit(kind, event as never)
    return lines.at(-1)?.[0]
  }
  const levels = Object.fromEntries(eventKinds.map((kind) => [kind, levelOf(kind)]))
  const kindsAt = (level: string) => eventKinds.filter((kind) => levels[kind] === level)
  assert.deepEqual(kindsAt('error'), ['lost', 'dual-owner-suspected'])
  assert.ok(['guard-refused', 'close-failed'].every((kind) => levels[kind] === 'warn'))
  assert.ok(['acquired', 'released', 'renewed'].every((kind) => levels[kind] === 'debug'))
  assert.equal(levelOf('failed', { final: true, outcome: 'failed' }), 'warn')
  assert.equal(levelOf('failed', { final: false, outcome: 'failed' }), 'debug')
  assert.equal(levelOf('failed', { final: true, outcome: 'cancelled' }), 'debug')
  assert.equal(levelOf('job', { outcome: 'done' }), 'info')
  assert.equal(levelOf('job', { outcome: 'set-aside' }), 'warn')
  assert.equal(levelOf('tick', { outcome: 'ran' }), 'info')
  assert.equal(levelOf('tick', { outcome: 'set-aside' }), 'warn')
  assert.ok(lines.every(([, line]) => typeof line.message === 'string' && !('msg' in line)))
})

test('the console is a logger, stop ends it, and what is none is refused at the start', () => {
  const { stop } = logEvents(console)
  assert.ok(eventKinds.every(hasListeners))
  stop()
  stop()
  assert.ok(!eventKinds.some(hasListeners))
  const refused = { code: 'INVALID_ARGUMENT' }
  for (const wrong of [undefined, null, {}, { ...recorded().logger, warn: 1 }])
    assert.throws(() => logEvents(wrong as never), refused)
  assert.throws(() => logEvents(console, { messageKey: '' }), refused)
  assert.throws(() => logEvents(console, { level: 'info' } as never), refused)
})

test('a logger with the methods of winston gets the sentence as message, and no field that it would replace', () => {
  // Winston documents `logger.info(info)` for an object as `logger.log({ ...info, level: 'info' })`, and `message` as its text.
  const written: Line[] = []
  const at = (level: string) => (info: Line) => {
    written.push({ ...info, level })
    return logger
  }
  const logger = { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') }
  const { stop } = logEvents(logger, { messageKey: 'message' })
  onTestFinished(stop)
  const about = {
    backend: 'b',
    namespace: 'n',
    name: 'a',
    holder: 'h',
    id: 'i',
    token: 5n,
    mode: 'exclusive',
  }
  emit('lost', { ...about, reason: 'expired', heldForMs: 7 } as never)
  assert.deepEqual(written, [
    {
      ...about,
      token: '5',
      reason: 'expired',
      heldForMs: 7,
      event: 'lost',
      message: 'holdfast: lost: "a"',
      level: 'error',
    },
  ])
})
