import { dirname } from 'node:path'
import { expect, test } from 'vitest'
import { folderWith } from '../lib/test-folder.ts'
import { bannedIn, checkBanned } from './banned.ts'

test.for([
  ['Date', 'const t = Date.now()'],
  ['Date', 'const t = new Date()'],
  ['Date', 'const t = globalThis.Date.now()'],
  ['Date', 'const clock = { now: Date.now }'],
  ['Date', 'const { now } = Date'],
  ['performance.now', 'const t = performance.now()'],
  ['process.hrtime', 'const t = process.hrtime.bigint()'],
  ['setTimeout', 'setTimeout(() => {}, 5)'],
  ['setTimeout', 'globalThis.setTimeout(() => {}, 5)'],
  ['setTimeout', 'const timers = { setTimeout }'],
  ['setTimeout', `import * as timers from 'node:timers/promises'`],
  ['setImmediate', 'const later = setImmediate'],
  ['AbortSignal.timeout', 'const signal = AbortSignal.timeout(5)'],
  ['Math.random', 'const jitter = Math.random()'],
  ['randomUUID', 'const id = crypto.randomUUID()'],
  ['randomBytes', `import { randomBytes as bytes } from 'node:crypto'`],
  ['getRandomValues', 'const id = globalThis.crypto.getRandomValues(buffer)'],
  ['console', 'console.log(1)'],
  ['console', `const text = \`\${console}\``],
])('%s is found in: %s', ([name, text]) => {
  const found = bannedIn('locker/lease.ts', `// first line\n${text}`)
  expect(found.map(({ line, message }) => `${line} ${message.split(':')[0]}`)).toEqual([`2 ${name}`])
})

test.for([
  '// Date.now() and console.log',
  `const text = 'Math.random() and setTimeout(f)'`,
  `const text = \`console.log \${name} Date.now()\``,
  'const pattern = /setTimeout\\(/',
  'clock.setTimeout(wake, 5)',
  'interface Clock { setTimeout(wake: () => void, ms: number): void }',
  'type Handle = ReturnType<typeof setTimeout>',
  'const clock = { setTimeout: wake, console: 1 }',
  'const when: Date = clock.date()',
  'class Clock { setTimeout() {} }',
])('nothing is found in: %s', (text) => {
  expect(bannedIn('locker/lease.ts', text)).toEqual([])
})

test('the one file that may use something is let through, and only for that', () => {
  expect(bannedIn('base/clock.ts', 'export const now = () => Date.now()')).toEqual([])
  expect(bannedIn('base/ids.ts', `import { randomBytes } from 'node:crypto'`)).toEqual([])
  expect(bannedIn('base/ids.ts', 'export const now = () => Date.now()')).toHaveLength(1)
  expect(bannedIn('base/clock.ts', 'console.log(1)')).toHaveLength(1)
})

test('core and engines are read, tests and other folders are not', () => {
  const text = 'console.log(1)'
  const names = [
    'locker/a.ts',
    'locker/a.test.ts',
    'engines/redis/client/e.ts',
    'engines/redis/locks/b.ts',
    'testing/c.ts',
    'guards/d.ts',
  ]
  const src = folderWith(Object.fromEntries(names.map((name) => [name, text])))
  const found = checkBanned(dirname(src), true)
  expect(found.map(({ file }) => file.split('/src/')[1])).toEqual([
    'locker/a.ts',
    'engines/redis/client/e.ts',
    'engines/redis/locks/b.ts',
  ])
})

test('another package is read whole, and has no file that may use what is banned', () => {
  const text = 'setTimeout(wake, 5)'
  const src = folderWith({ 'a.ts': text, 'base/clock.ts': text, 'web/a.test.ts': text, 'web/page.ts': text })
  const found = checkBanned(dirname(src), false)
  expect(found.map(({ file }) => file.split('/src/')[1])).toEqual(['a.ts', 'base/clock.ts', 'web/page.ts'])
  expect(new Set(found.map(({ message }) => message.split(';')[0]))).toEqual(
    new Set(['setTimeout: nobody here may use it']),
  )
})
