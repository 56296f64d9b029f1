import { describe, expect, test } from 'vitest'
import type { HolderState, NameState, WaiterState } from '../base/types.ts'
import { explainName } from './explain-name.ts'

const holder = (facts: Partial<HolderState> = {}): HolderState => ({
  ...{ id: 'id', holder: 'api-1', mode: 'exclusive', session: 's', ttlMs: 15_000, token: null },
  ...{ heldForMs: 12_000, expiresInMs: 11_000 },
  ...facts,
})
const stateOf = (facts: Partial<NameState> = {}): NameState => ({
  ...{ name: 'x', holders: [], waiters: [], closedForMs: 0, atMs: 0 },
  ...facts,
})
const waiter: WaiterState = {
  ...{ id: 'w', holder: 'api-2', mode: 'exclusive', session: 's', ttlMs: 15_000, waitingForMs: 200 },
}
const held = (facts?: Partial<HolderState>) => stateOf({ holders: [holder(facts)] })
const { expiresInMs: _, ...untold } = holder()
const permit = (weight: number, facts = {}) => holder({ mode: 'permits', weight, ...facts })

describe('what is going on with a name', () => {
  test.each<readonly [NameState | null, string]>([
    [null, 'Free: nobody holds it and nobody waits.'],
    [stateOf({ data: 'x' }), 'Free: nobody holds it and nobody waits. The last holder has left data.'],
    [held(), 'Held by "api-1" for 12 s, renewing.'],
    [
      held({ expiresInMs: 3_000 }),
      'Held by "api-1" for 12 s, not renewed for 12 s; its time is over in 3 s.',
    ],
    [stateOf({ holders: [untold] }), 'Held by "api-1" for 12 s, renewal unknown.'],
    [held({ expiresInMs: Infinity }), 'Held by "api-1" for 12 s, without an end.'],
    [held({ ttlMs: 0, expiresInMs: 900 }), 'Held by "api-1" for 12 s, renewal unknown.'],
    [held({ mode: 'shared', heldForMs: 200_000 }), 'Shared by one reader, "api-1" for 3 min, renewing.'],
    [
      stateOf({ holders: [holder({ mode: 'shared' }), holder({ mode: 'shared', expiresInMs: 1 })] }),
      'Shared by 2 readers, of which 1 does not renew.',
    ],
    [
      stateOf({ capacity: 5, holders: [permit(2), permit(1)], waiters: [waiter] }),
      '3 of 5 permits are held, by 2 holders, renewing; 1 wait, the first for 200 ms.',
    ],
    [
      stateOf({ closedForMs: 4_000 }),
      'Closed for 4 s more by a lock-delay or a hold-at-least; the engine does not say which.',
    ],
    [stateOf({ waiters: [waiter] }), 'Nobody holds it; 1 wait, the first for 200 ms.'],
    [held({ holder: 'a\u001b[2J' }), 'Held by "a\\u001b[2J" for 12 s, renewing.'],
  ])('%#: %j', (state, sentence) => {
    expect(explainName(state)).toBe(sentence)
  })

  test('where the engine does not tell, a closed name and a free one look alike', () => {
    const { closedForMs: _, ...state } = stateOf()
    expect(explainName(state)).toMatch(/may be closed/)
  })
})
