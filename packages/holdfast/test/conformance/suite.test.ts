/** The suite itself: its cases as data, and the rules for what a backend may leave out. */
import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { replace } from '../../src/testing/conformance/wrapping.ts'
import {
  type BackendCase,
  type BackendSuite,
  backendCases,
  describeBackend,
} from '../../src/testing/describe-backend.ts'
import { tellsExpiriesAs } from './consensus-like.ts'
import { memoryWorld } from './memory-world.ts'

/** A runner that collects and then runs, and tells what passed. */
async function report(
  suite: Omit<BackendSuite, 'name' | 'describe' | 'test'>,
  topics: string[] = [],
): Promise<Map<string, unknown>> {
  const tests: { name: string; body: () => Promise<void> }[] = []
  describeBackend({
    name: 'memory',
    describe: (name, body) => {
      topics.push(name)
      body()
    },
    test: (name, body) => void tests.push({ name, body }),
    ...suite,
  })
  const results = new Map<string, unknown>()
  for (const { name, body } of tests)
    results.set(
      name,
      await body().then(
        () => 'passed',
        (error: unknown) => (error as Error).message,
      ),
    )
  return results
}

/** Notes what is asked of a backend and its sessions, or of a world. */
function recording<T extends object>(inner: T, names: Set<string>): T {
  return new Proxy(inner, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key, target)
      if (typeof key === 'string' && (typeof value === 'function' || value === undefined)) names.add(key)
      if (typeof value !== 'function') return value
      return (...args: unknown[]) => {
        const answer: unknown = value.apply(target, args)
        if (key !== 'openSession' && key !== 'attachSession') return answer
        return Promise.resolve(answer).then((session) =>
          session === null ? null : recording(session as object, names),
        )
      }
    },
  })
}

const only = (...rules: string[]) => backendCases().filter(({ rule }) => rules.includes(rule))
const createWorld = () => memoryWorld()

const withoutData = () =>
  memoryWorld({
    wrap: (backend) =>
      replace(backend, {
        backend: (inner) => ({ info: { ...inner.info, data: false } }),
        session: () => ({ setData: undefined }),
      }),
  })

describe('the conformance suite', () => {
  test('has at least 100 cases, each with a number of its own and a sentence of its own', () => {
    const cases = backendCases()
    assert(cases.length >= 100)
    assert.equal(new Set(cases.map(({ rule }) => rule)).size, cases.length)
    assert.equal(new Set(cases.map(({ title }) => title)).size, cases.length)
    const numbers = cases.map(({ rule }) => Number(/^C(\d+)$/.exec(rule)?.[1])).sort((a, b) => a - b)
    assert.deepEqual(
      numbers,
      Array.from({ length: cases.length }, (_, index) => index + 1),
      'no number is left out',
    )
    for (const { title } of cases) assert.match(title, /^([GT]\d+ )*\S+( \S+){3,}$/)
  })

  test('names what ran: rule, guarantees and traps, and the sentence', async () => {
    const results = await report({ createWorld, cases: only('C12') })
    assert.deepEqual(
      [...results],
      [
        ['every declared exception names a case once and says why', 'passed'],
        ['C12 T31 a keep-alive does not revive an expired session', 'passed'],
      ],
    )
  })

  test('all cases are played, unless the harness asks for those that touch the client, and the report says which', async () => {
    const [all, some]: [string[], string[]] = [[], []]
    const cases = only('C12', 'C52')
    const whole = await report({ createWorld, cases }, all)
    const narrow = await report({ createWorld, cases, only: 'client' }, some)
    assert.deepEqual(
      [all[0], some[0]],
      ['memory conforms', 'memory: only 1 of 2 cases, which touch the client'],
    )
    assert.equal(whole.size, 3)
    assert.deepEqual(
      [...narrow],
      [
        ['every declared exception names a case once and says why', 'passed'],
        ['C52 G2 grants at once, from several clients, all have different tokens', 'passed'],
      ],
    )
  })

  test('a narrowed run that plays nothing fails, and may except a case that it does not play', async () => {
    const title = 'every declared exception names a case once and says why'
    const except = [{ rule: 'C71', lacksHook: 'countCommands', why: 'there is no wire' }] as const
    const nothing = await report({ createWorld, cases: only('C12'), only: 'client' })
    assert.equal(nothing.get(title), 'no case is played')
    const excepted = await report({ createWorld, cases: only('C71', 'C12', 'C52'), only: 'client', except })
    assert.equal(excepted.get(title), 'passed')
    const unplayed = [{ rule: 'C12', why: 'not with this client' }]
    const narrow = await report({ createWorld, cases: only('C12', 'C52'), only: 'client', except: unplayed })
    assert.deepEqual([...narrow.values()], ['passed', 'passed'])
  })

  test('the cases that touch the client make every call of the interface, and use every hook of the wire', async () => {
    const used = async (cases: readonly BackendCase[]) => {
      const names = new Set<string>()
      for (const each of cases) {
        const world = await memoryWorld({ wrap: (backend) => recording(backend, names) })
        // Here a case may fail for want of a hook.
        await each.run(recording(world, names)).catch(() => {})
        await world.close()
      }
      return [...names].sort()
    }
    const cases = backendCases()
    const touching = cases.filter(({ touches }) => touches === 'client')
    assert(touching.length < cases.length / 2, `${touching.length} of ${cases.length} cases`)
    // Pure rules are shown with a deleted record.
    const all = (await used(cases)).filter((name) => name !== 'deleteName')
    assert.deepEqual(await used(touching), all)
    for (const name of ['enqueue', 'keepAlive', 'diagnose', 'restart', 'countConnections'])
      assert(all.includes(name), name)
  })

  test('a declared exception runs, and passes because it fails', async () => {
    const except = [{ rule: 'C71', lacksHook: 'countCommands', why: 'there is no wire' }] as const
    const results = await report({ createWorld, cases: only('C71'), except })
    assert.equal(
      results.get(
        'exception C71: a release costs as many commands with many waiting as with few (there is no wire)',
      ),
      'passed',
    )
  })

  test('an exception that fails for want of a hook, and does not say so, fails the run', async () => {
    const results = await report({
      createWorld,
      cases: only('C71'),
      except: [{ rule: 'C71', why: 'too slow' }],
    })
    assert(
      [...results.values()].some((result) =>
        /fails for another reason than was declared/.test(String(result)),
      ),
    )
  })

  test('an exception that would pass fails the run', async () => {
    const except = [{ rule: 'C12', why: 'we thought so' }]
    const results = await report({ createWorld, cases: only('C12'), except })
    assert([...results.values()].includes('exception C12 would pass: remove it'))
  })

  test('an exception for a case that does not exist, or without a reason, fails the run', async () => {
    const title = 'every declared exception names a case once and says why'
    const cases = only('C12')
    const guaranteed = backendCases().find(({ title }) => /\bG1\b/.test(title))
    assert(guaranteed !== undefined)
    const check = async (except: BackendSuite['except'], among = cases) =>
      (await report({ createWorld, cases: among, except: except ?? [] })).get(title)
    assert.equal(
      await check([{ rule: 'C9999', why: 'a typing error' }]),
      'exception C9999: there is no such case',
    )
    assert.equal(await check([{ rule: 'C12', why: ' ' }]), 'exception C12: say why')
    assert.equal(
      await check([{ rule: guaranteed.rule, why: 'it is too hard here' }], [guaranteed]),
      `exception ${guaranteed.rule}: no backend may be excepted from G1`,
    )
    assert.equal(
      await check([
        { rule: 'C12', why: 'once' },
        { rule: 'C12', why: 'twice' },
      ]),
      'two exceptions name the same case',
    )
  })

  test('a world that cannot be created fails also a declared exception', async () => {
    const except = [{ rule: 'C71', lacksHook: 'countCommands', why: 'there is no wire' }] as const
    const unreachable = () => Promise.reject(new Error('the server is down'))
    const results = await report({ createWorld: unreachable, cases: only('C12', 'C71'), except })
    assert.deepEqual([...results.values()], ['passed', 'the server is down', 'the server is down'])
  })

  test('what a backend lacks must be declared, and is then refused rather than skipped', async () => {
    const cases = only('C132')
    const undeclared = await report({ createWorld: withoutData, cases })
    assert([...undeclared.values()].includes("the backend has no data: declare it in 'lacks'"))
    const declared = await report({ createWorld: withoutData, cases, lacks: ['data'] })
    assert.equal(
      declared.get(
        'C132 lacks data and refuses it: the next holder gets what the last one left, and the first gets nothing',
      ),
      'passed',
    )
    const lying = await report({ createWorld, cases, lacks: ['data'] })
    assert([...lying.values()].includes("the backend has data: remove it from 'lacks'"))
  })

  test('that a watch cannot tell causes is declared, and an expiry is still not told as a release', async () => {
    const check = async (kind: 'expired' | 'ended' | 'released') => {
      const results = await report({
        createWorld: () => memoryWorld({ wrap: tellsExpiriesAs(kind) }),
        cases: only('C182'),
        lacks: ['causes'],
      })
      return [...results.values()].at(-1)
    }
    assert.equal(await check('ended'), 'passed')
    assert.match(String(await check('expired')), /expired y/)
    assert.match(String(await check('released')), /released y/)
  })

  test('a watch that fails is shown with its error, and not as missing events', async () => {
    const failing = () =>
      memoryWorld({
        wrap: (backend) =>
          replace(backend, {
            backend: () => ({
              // biome-ignore lint/correctness/useYield: it fails before the first event
              async *watch() {
                throw new Error('no such stream')
              },
            }),
          }),
      })
    const results = await report({ createWorld: failing, cases: only('C180', 'C184', 'C234') })
    for (const result of [...results.values()].slice(1)) assert.match(String(result), /no such stream/)
    assert.equal(results.size, 4)
  })

  test('that claims have a time of their own is declared, and is shown to be so', async () => {
    const lying = await report({ createWorld, cases: only('C235'), lacks: ['session-claims'] })
    assert(
      [...lying.values()].includes(
        "claims live as long as their session: remove 'session-claims' from 'lacks'",
      ),
    )
  })
})
