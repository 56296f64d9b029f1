import { describe, expect, test } from 'vitest'
import { HistoryError } from './history-error.ts'
import { formatHistory, parseHistory, parseLines } from './lines.ts'
import { simulate } from './testing/simulate.ts'
import { Story } from './testing/story.ts'

const about = '{"kind":"about","version":1}'
const invoke = '{"kind":"invoke","seq":1,"at":10,"id":"x","process":"p","op":"acquire","name":"n"}'

function refusal(...lines: readonly string[]): { code: string; line: number | null; message: string } {
  try {
    parseHistory(lines.map((line) => `${line}\n`).join(''))
  } catch (error) {
    if (error instanceof HistoryError) return { code: error.code, line: error.line, message: error.message }
    throw error
  }
  throw new Error('it was accepted')
}

describe('histories as lines', () => {
  test('what is written is read again, with all kinds of events', () => {
    const { about, events, history } = simulate({ seed: 1, clients: 3, operations: 200, faults: 0.1 })
    const text = formatHistory(about, events)
    expect(parseHistory(text)).toEqual(history)
    expect(text).toContain('"token":"1"')
  })

  test('T42 tokens keep all their digits, and are refused as numbers', () => {
    const token = 2n ** 63n - 1n
    const story = new Story().acquire('A', 0, 1, { token })
    const read = parseHistory(formatHistory({ kind: 'about', version: 1 }, story.events()))
    expect(read.operations[0]?.token).toBe(token)
    const answer = '{"kind":"return","seq":2,"at":11,"id":"x","outcome":"ok","token":17}'
    expect(refusal(about, invoke, answer)).toMatchObject({ code: 'MALFORMED', line: 3 })
  })

  test.each([
    ['no first line', [], 1, 'begins with'],
    ['another first line', [invoke], 1, 'kind must be'],
    ['another version', ['{"kind":"about","version":2}'], 1, 'version must be one of 1'],
    ['no JSON', [about, '{'], 2, 'line 2: '],
    ['no object', [about, '[]'], 2, 'kind must be one of'],
    ['a kind that nobody knows', [about, '{"kind":"inwoke"}'], 2, 'kind must be one of belief, invoke'],
    ['a missing field', [about, '{"kind":"queued","seq":1,"at":1}'], 2, 'id is missing'],
    ['a field that nobody knows', [about, invoke.replace('"name"', '"nmae"')], 2, 'there is no field "nmae"'],
    [
      'an outcome that nobody knows',
      [about, invoke, '{"kind":"return","seq":2,"at":1,"id":"x","outcome":"maybe"}'],
      3,
      'outcome must',
    ],
    ['a time that is none', [about, invoke.replace('10', '"10"')], 2, 'at must be a number'],
    [
      'a belief without what',
      [about, '{"kind":"belief","seq":1,"at":1,"leaseId":"a"}'],
      2,
      'what must be one of began',
    ],
  ] as const)('malformed: %s', (_what, lines, line, words) => {
    const refused = refusal(...lines)
    expect(refused).toMatchObject({ code: 'MALFORMED', line })
    expect(refused.message).toContain(words)
  })

  test.each([
    ['time that goes back', [about, invoke, '{"kind":"quiet","seq":2,"at":9}'], 3, 'before its predecessor'],
    ['an order that goes back', [about, invoke, '{"kind":"quiet","seq":1,"at":10}'], 3, 'must increase'],
    [
      'an operation that is invoked twice',
      [about, invoke, invoke.replace('"seq":1', '"seq":2')],
      3,
      'invoked twice',
    ],
    [
      'a return of nothing',
      [about, '{"kind":"return","seq":1,"at":1,"id":"x","outcome":"ok"}'],
      2,
      'without having been invoked',
    ],
    ['a name that is missing', [about, invoke.replace(',"name":"n"', '')], 2, 'has no name'],
    [
      'a belief that has not begun',
      [about, '{"kind":"belief","what":"seen","seq":1,"at":1,"leaseId":"a"}'],
      2,
      'has not begun',
    ],
    [
      'a belief that counts from a receipt in the future',
      [
        about,
        '{"kind":"belief","what":"began","seq":1,"at":1,"leaseId":"a","process":"p","name":"n","sentAt":2,"ttlMs":9}',
      ],
      2,
      'after the answer',
    ],
    [
      'a grant to nobody',
      [about, '{"kind":"engine","what":"granted","seq":1,"at":1,"name":"n"}'],
      2,
      'has no leaseId',
    ],
  ] as const)('contradictory: %s', (_what, lines, line, words) => {
    const refused = refusal(...lines)
    expect(refused).toMatchObject({ code: 'CONTRADICTORY', line })
    expect(refused.message).toContain(words)
  })

  test('a last line that was torn by a kill is left out on request', () => {
    const torn = `${about}\n${invoke}\n{"kind":"retu`
    expect(() => parseLines(torn)).toThrow(HistoryError)
    expect(parseLines(torn, { torn: 'allowed' }).events).toHaveLength(1)
    expect(parseLines(`${about}\n${invoke}\n`, { torn: 'allowed' }).events).toHaveLength(1)
  })
})
