import { expect, test } from 'vitest'
import { backends, type Cell, type Trap, type TrapSection, trapNumbers } from '../docs/trap-types.ts'
import { renderTraps } from '../docs/traps.ts'
import { checkGuarantees, checkSuites, checkTraps, type PassedTest, passedTests } from './claims.ts'

const numbers = (letter: string, last: number) =>
  Array.from({ length: last }, (_, index) => `${letter}${index + 1}`)
const named = (name: string, file = 'packages/a.test.ts'): PassedTest => ({ name, file })
const messages = (complaints: readonly { message: string }[]) => complaints.map(({ message }) => message)

test('only passed tests count, under their full name and their path in the repository', () => {
  const assertionResults = [
    { ancestorTitles: ['lease', 'belief'], title: 'G3 ends', status: 'passed' },
    { ancestorTitles: ['lease'], title: 'G4 is final', status: 'failed' },
    { ancestorTitles: [], title: 'G5 skipped', status: 'pending' },
  ]
  const report = { testResults: [{ name: '/repository/packages/a.test.ts', assertionResults }] }
  expect(passedTests(report, '/repository')).toEqual([named('lease belief G3 ends')])
})

test('guarantees with a passed and cited test each pass', () => {
  const passed = numbers('G', 13).map((id) => named(`lease ${id} holds`))
  const guide = numbers('G', 13).map((id) => `- ${id}: \`${id} holds\` and the code \`G0\`, \`lease\``)
  expect(checkGuarantees(guide.join('\n'), passed)).toEqual([])
})

test('a guarantee without a passed test, and a citation of a test that did not pass, are refused', () => {
  const passed = numbers('G', 13).map((id) => named(`lease ${id} holds`))
  const guide = `${numbers('G', 13)
    .map((id) => `\`${id} holds\``)
    .join(' ')}\n\`G7 no crossfire\``
  // G13 must not be taken for G1.
  expect(checkGuarantees(guide, passed.slice(1))).toEqual([
    { file: 'docs/guarantees.md', line: 1, message: 'no test passed that is called "G1 holds"' },
    { file: 'docs/guarantees.md', line: 2, message: 'no test passed that is called "G7 no crossfire"' },
    { file: 'docs/guarantees.md', message: 'no test passed whose name contains G1' },
  ])
  expect(messages(checkGuarantees('nothing cited', passed))).toContain('cites no test for G12')
})

function trapsWith(changes: Record<string, Partial<Trap>>): TrapSection[] {
  const reason: Cell = { reason: 'cannot happen' }
  const traps = trapNumbers.map((number) => {
    const id = `T${number}`
    const trap = {
      id: id as Trap['id'],
      title: 'a trap',
      core: reason,
      backends: reason,
      later: reason,
    }
    return { ...trap, ...changes[id] }
  })
  return [{ title: 'All', traps }]
}

function complaintsOf(changes: Record<string, Partial<Trap>>, ...passed: PassedTest[]): string[] {
  const sections = trapsWith(changes)
  return messages(checkTraps(sections, renderTraps(sections), passed))
}

test('a trap with a passed test passes', () => {
  const cell = { test: 'a lost reply' }
  expect(complaintsOf({ T7: { core: cell } }, named('keeper T7 a lost reply'))).toEqual([])
  expect(complaintsOf({ T7: { sqlite: cell } }, named('sqlite T7 a lost reply'))).toEqual([])
  const inFolder = named('T7 a lost reply', 'packages/holdfast/src/engines/sqlite/locks/backend.test.ts')
  expect(complaintsOf({ T7: { sqlite: cell } }, inFolder)).toEqual([])
})

test('a trap without its own passed test is refused', () => {
  const cell = { test: 'a lost reply' }
  const complaint = 'T7 core: no test passed that contains T7 and "a lost reply"'
  expect(complaintsOf({ T7: { core: cell } })).toEqual([complaint])
  expect(complaintsOf({ T7: { core: cell } }, named('T70 a lost reply'))).toEqual([complaint])
  expect(complaintsOf({ T7: { core: cell } }, named('T7 something else'))).toEqual([complaint])
  expect(complaintsOf({ T7: { sqlite: cell } }, named('memory T7 a lost reply'))).toEqual([
    'T7 sqlite: no test passed that contains T7 and "a lost reply" and names sqlite in its name or path',
  ])
  const advisory = named('postgres-advisory T7 a lost reply', 'test/postgres-advisory/a.test.ts')
  expect(complaintsOf({ T7: { postgres: cell } }, advisory)).toHaveLength(1)
  expect(complaintsOf({ T7: { 'postgres-advisory': cell } }, advisory)).toEqual([])
})

test.each([
  ['postgres', 'postgres-advisory', 'postgres/advisory'],
  ['redis', 'redlock', 'redis/redlock'],
] as const)(
  'a test in the folder of an engine, %s, shows nothing about it if it is in that of %s',
  (engine, own, folder) => {
    const cell = { test: 'a lost reply' }
    const passed = named('T7 a lost reply', `packages/holdfast/src/engines/${folder}/a.test.ts`)
    expect(complaintsOf({ T7: { [own]: cell } }, passed)).toEqual([])
    expect(complaintsOf({ T7: { [engine]: cell } }, passed)).toHaveLength(1)
    const client = named('T7 a lost reply', `packages/holdfast/src/engines/${engine}/client/a.test.ts`)
    expect(complaintsOf({ T7: { [engine]: cell } }, client)).toEqual([])
  },
)

test('a test for every backend must have passed for each that has no answer of its own', () => {
  const suite = { backends: { test: 'a lost reply' } }
  const ran = backends.map((backend) => named(`${backend} T7 a lost reply`))
  expect(complaintsOf({ T7: suite }, ...ran)).toEqual([])
  // Redlock has skipped the rule: the suite then leaves the numbers out.
  const skipped = ran.map((test) =>
    test.name.startsWith('redlock') ? named('redlock a lost reply: skipped') : test,
  )
  expect(complaintsOf({ T7: suite }, ...skipped)).toEqual([
    'T7 redlock: no test passed that contains T7 and "a lost reply" and names redlock in its name or path',
  ])
  expect(complaintsOf({ T7: { ...suite, redlock: { reason: 'no replies' } } }, ...skipped)).toEqual([])
})

test('core can answer for all backends, or each must answer for itself', () => {
  const core = { test: 'a lost reply' }
  const byCore = { T7: { core, backends: 'as core' } } as const
  expect(complaintsOf(byCore, named('keeper T7 a lost reply'))).toEqual([])
  expect(complaintsOf(byCore)).toHaveLength(1)
  expect(complaintsOf({ T7: { backends: 'each its own', redis: { reason: 'no replies' } } })).toEqual(
    backends.filter((name) => name !== 'redis').map((name) => `T7 ${name}: neither a test nor a reason`),
  )
})

test('an open cell, a missing trap and a stale page are refused', () => {
  expect(complaintsOf({ T3: { memory: { reason: ' ' } } })).toEqual([
    'T3 memory: neither a test nor a reason',
  ])
  const [section] = trapsWith({})
  const short = [{ title: 'All', traps: section?.traps.slice(1) ?? [] }]
  expect(messages(checkTraps(short, renderTraps(short), []))[0]).toMatch(/^must list T1 T2/)
  expect(messages(checkTraps(trapsWith({}), 'old', []))).toEqual([
    'differs from its data; run npm run docs:traps',
  ])
})

const suiteOf = (run: string, ...titles: string[]) =>
  titles.map((title) => named(`on a server ${run} topic ${title}`))

test('the conformance suite is whole when one client library has played every case', () => {
  const rules = ['C1', 'C2', 'C12']
  const runs = { acme: ['acme with a+b', 'acme, restarted'] }
  const passed = [
    ...suiteOf('acme with a+b conforms', 'C1 G6 as C7 does', 'C12 lacks data and refuses it: nothing'),
    ...suiteOf('acme, restarted conforms', 'exception C2: it starts again (it cannot)'),
  ]
  expect(checkSuites(rules, passed, runs)).toEqual([])
  expect(messages(checkSuites(rules, passed.slice(1), runs))).toEqual([
    '1 of 3 cases did not pass with acme with a+b, acme, restarted: C1',
  ])
})

test('a narrowed run and a run with another client do not make the suite whole', () => {
  const runs = { acme: ['acme with a'] }
  const others = [
    ...suiteOf('acme with a: only 1 of 2 cases, which touch the client', 'C1 one', 'C2 two'),
    ...suiteOf('acme with a behind a pooler conforms', 'C1 one', 'C2 two'),
    ...suiteOf('megaacme with a conforms', 'C1 one', 'C2 two'),
  ]
  expect(messages(checkSuites(['C1', 'C2'], others, runs))).toEqual([
    '2 of 2 cases did not pass with acme with a: C1, C2',
  ])
})

test('the page shows tests, reasons and what comes later', () => {
  const cells = { core: { test: 'a | b' }, later: { later: ['remote'] as const } }
  const own = { redis: { reason: 'one' }, redlock: { test: 'two' }, postgres: { reason: 'one' } }
  const page = renderTraps(trapsWith({ T1: { ...cells, ...own, seenIn: 'elsewhere' } }))
  expect(page).toContain(
    '| **T1** a trap<br>*elsewhere* | ✓ `a \\| b` | cannot happen | **redis, postgres**: one<br>**redlock**: ✓ `two` | later: remote |\n',
  )
})
