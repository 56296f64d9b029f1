import { describe, expect, test } from 'vitest'
import { checkLinearizable } from './check.ts'
import type { Act, Model } from './model.ts'
import type { LockCall } from './models/call.ts'
import { fencedMutex } from './models/fenced-mutex.ts'
import { mutex } from './models/mutex.ts'
import { reentrantFencedMutex } from './models/reentrant-fenced-mutex.ts'
import { semaphore } from './models/semaphore.ts'

/** `A+ 0 10 #5`: A acquires from 0 to 10 with token 5. `A- 20 ?`: A releases from 20 on, nobody knows. `*2`: weight. */
function acts(...lines: readonly string[]): Act<LockCall>[] {
  return lines.map((line) => {
    const [, owner = '', sign, from, to, token, weight] =
      /^(\w+)([+-]) (\d+) (\d+|\?)(?: #(\d+))?(?: \*(\d+))?$/.exec(line) ?? []
    const facts = {
      ...(token ? { token: BigInt(token) } : {}),
      ...(weight ? { weight: Number(weight) } : {}),
    }
    const call = { kind: sign === '+' ? 'acquire' : 'release', owner, ...facts } as const
    const certain = to !== '?'
    const returned = certain ? Number(to) : Infinity
    return { name: 'n', call, invoked: Number(from), returned, certain, label: () => line }
  })
}

function isLinearizable<State>(model: Model<State, LockCall>, ...lines: readonly string[]): boolean {
  return checkLinearizable(model, acts(...lines)).result === 'linearizable'
}

const cases: readonly {
  readonly model: Model<unknown, LockCall>
  readonly good: Readonly<Record<string, readonly string[]>>
  readonly bad: Readonly<Record<string, readonly string[]>>
}[] = [
  {
    model: mutex() as Model<unknown, LockCall>,
    good: {
      'turns that overlap at the ends': ['A+ 0 10', 'B+ 5 30', 'A- 20 40', 'B- 35 50'],
      'a return and an invocation in the same place': ['A+ 0 10', 'A- 10 20', 'B+ 20 30'],
      'an unknown release that did land': ['A+ 0 10', 'A- 20 ?', 'B+ 5 30'],
      'an unknown release that landed late, after a repeated one was told that nothing was held': [
        'A+ 0 10',
        'A- 20 ?',
        'B+ 30 90',
        'B- 95 96',
      ],
      'an unknown acquire that never landed': ['A+ 0 ?', 'B+ 5 10', 'C+ 11 40', 'B- 12 20'],
      'an unknown acquire that must have landed': ['A+ 0 ?', 'A- 50 60', 'B+ 70 80'],
    },
    bad: {
      'two holders': ['A+ 0 10', 'B+ 11 20', 'A- 30 40'],
      'a release by somebody else': ['A+ 0 10', 'B- 20 30'],
      'a release of what nobody holds': ['A+ 0 10', 'A- 20 30', 'A- 40 50'],
      'a release that comes too late for the next': ['A+ 0 10', 'B+ 5 20', 'A- 21 30'],
      'an unknown release that was sent too late': ['A+ 0 10', 'B+ 5 20', 'A- 21 ?'],
      'the same owner twice': ['A+ 0 10', 'A+ 20 30'],
    },
  },
  {
    model: fencedMutex() as Model<unknown, LockCall>,
    good: {
      'tokens with gaps': ['A+ 0 10 #3', 'A- 11 20', 'B+ 21 30 #90'],
      'concurrent acquires in the order of their tokens': ['A+ 0 50 #2', 'B+ 0 20 #1', 'B- 21 30'],
      'an unknown token between two that leave room': [
        'A+ 0 10 #3',
        'A- 11 12',
        'B+ 13 ?',
        'B- 20 21',
        'C+ 22 30 #5',
      ],
      'an unknown acquire that did not happen': ['A+ 0 10 #3', 'A- 11 12', 'B+ 13 ?', 'C+ 22 30 #4'],
    },
    bad: {
      'a token that is lower': ['A+ 0 10 #3', 'A- 11 20', 'B+ 21 30 #2'],
      'a token that is the same': ['A+ 0 10 #3', 'A- 11 20', 'B+ 21 30 #3'],
      'a grant whose token is not known, where there is no room for one': [
        'A+ 0 10 #3',
        'A- 11 12',
        'B+ 13 ?',
        'B- 20 21',
        'C+ 22 30 #4',
      ],
      'a token below those that are positive': ['A+ 0 10 #0'],
    },
  },
  {
    model: reentrantFencedMutex(2) as Model<unknown, LockCall>,
    good: {
      'in twice with one token': ['A+ 0 10 #3', 'A+ 11 20 #3', 'A- 21 30', 'A- 31 40', 'B+ 41 50 #4'],
      're-entry tells the token of an unknown acquire': [
        'A+ 0 ?',
        'A+ 11 20 #3',
        'A- 21 30',
        'A- 31 40',
        'B+ 41 50 #4',
      ],
      'an unknown release in the middle': ['A+ 0 10 #3', 'A+ 11 20 #3', 'A- 21 ?', 'A- 31 40', 'B+ 41 50 #4'],
    },
    bad: {
      'T39 another token on re-entry': ['A+ 0 10 #3', 'A+ 11 20 #4'],
      'in three times': ['A+ 0 10 #3', 'A+ 11 20 #3', 'A+ 21 30 #3'],
      'somebody else before the last release': [
        'A+ 0 10 #3',
        'A+ 11 20 #3',
        'A- 21 30',
        'B+ 31 40 #4',
        'A- 41 50',
      ],
      'released too often': ['A+ 0 10 #3', 'A- 11 20', 'A- 21 30'],
      'the old token in a new turn': ['A+ 0 10 #3', 'A- 11 20', 'A+ 21 30 #3'],
    },
  },
  {
    model: semaphore(3) as Model<unknown, LockCall>,
    good: {
      'filled exactly': ['A+ 0 10 *1', 'B+ 0 10 *2', 'A- 11 20 *1', 'C+ 12 30 *1'],
      'given back in parts': ['A+ 0 10 *3', 'A- 11 20 *1', 'B+ 21 30 *1', 'A- 31 40 *2'],
      'an unknown release makes room': ['A+ 0 10 *3', 'A- 11 ? *3', 'B+ 12 30 *3'],
      'only an unknown acquire lets that much be given back': [
        'A+ 0 10 *2',
        'A+ 11 ? *1',
        'A- 20 ? *3',
        'B+ 30 40 *3',
      ],
    },
    bad: {
      'one too many': ['A+ 0 10 *2', 'B+ 11 20 *2'],
      'more given back than held': ['A+ 0 10 *1', 'A- 11 20 *2'],
      'given back by somebody else': ['A+ 0 10 *1', 'B- 11 20 *1'],
      'room that is made too late': ['A+ 0 10 *3', 'B+ 11 20 *1', 'A- 21 ? *3'],
    },
  },
]

describe.each(cases)('$model.title', ({ model, good, bad }) => {
  test.each(Object.entries(good))('good: %s', (_what, lines) => {
    expect(isLinearizable(model, ...lines)).toBe(true)
  })

  test.each(Object.entries(bad))('bad: %s', (_what, lines) => {
    expect(isLinearizable(model, ...lines)).toBe(false)
  })
})

test('each name is an object of its own', () => {
  const [one, other] = acts('A+ 0 10', 'B+ 11 20')
  if (one === undefined || other === undefined) throw new Error('there are two')
  const { result, names } = checkLinearizable(mutex(), [one, { ...other, name: 'm' }])
  expect(result).toBe('linearizable')
  expect([...names.keys()]).toEqual(['n', 'm'])
})

test('a violation is told with the longest order that makes sense, and what cannot come next', () => {
  const result = checkLinearizable(fencedMutex(), acts('A+ 0 10 #5', 'A- 11 20', 'B+ 21 30 #4', 'B- 31 40'))
  const found = result.names.get('n')
  if (found?.result !== 'not-linearizable') throw new Error('it is not')
  expect(found.prefix.map((act) => act.label())).toEqual(['A+ 0 10 #5', 'A- 11 20'])
  expect(found.stuck.map((act) => act.label())).toEqual(['B+ 21 30 #4'])
  expect(found.explanation.split('\n')).toEqual([
    'The operations on "n" cannot have taken effect one at a time on a fenced mutex.',
    'At most these 2 can be put in order:',
    '  A+ 0 10 #5',
    '  A- 11 20',
    'Then it is free, and the highest token is 5 or more, and one of these must come next:',
    '  B+ 21 30 #4: cannot take effect then',
  ])
})

test('what is not searched to the end is unknown', () => {
  const many = acts('A+ 0 10', 'B+ 11 20', 'A- 30 40')
  expect(checkLinearizable(mutex(), many, { timeoutMs: -1 }).result).toBe('unknown')
  expect(checkLinearizable(mutex(), many, { maxConfigurations: 0 }).result).toBe('unknown')
})
