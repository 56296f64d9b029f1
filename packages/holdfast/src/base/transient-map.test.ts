import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { TransientMap } from './transient-map.ts'

describe('a map for what comes and goes', () => {
  test('it holds what a map would hold, in the same order, through any number of comings and goings', () => {
    const map = new TransientMap<number, string>()
    const model = new Map<number, string>()
    for (let turn = 0; turn < 5_000; turn++) {
      const key = (turn * 7_919) % 97
      if (turn % 3 === 2) assert.equal(map.delete(key), model.delete(key))
      else {
        map.set(key, `value ${turn}`)
        model.set(key, `value ${turn}`)
      }
      assert.equal(map.size, model.size)
      assert.equal(map.get(key), model.get(key))
      assert.equal(map.has(key + 1), model.has(key + 1))
    }
    assert.deepEqual([...map], [...model])
    assert.deepEqual([...map.keys()], [...model.keys()])
    assert.deepEqual([...map.values()], [...model.values()])
    const visited: unknown[] = []
    map.forEach((value, key) => {
      visited.push([key, value])
    })
    assert.deepEqual(visited, [...model])
  })

  test('deleting while iterating shows each entry that is there, once', () => {
    const map = new TransientMap<number, number>()
    for (let key = 0; key < 500; key++) map.set(key, key)
    const seen: number[] = []
    for (const key of map.keys()) {
      seen.push(key)
      map.delete(key)
      map.delete(key + 1)
    }
    assert.deepEqual(
      seen,
      Array.from({ length: 250 }, (_, index) => index * 2),
    )
    assert.equal(map.size, 0)
  })

  test('it can be cleared and used again', () => {
    const map = new TransientMap<string, number>()
    map.set('a', 1)
    map.clear()
    assert.equal(map.size, 0)
    map.set('b', 2)
    assert.deepEqual([...map.entries()], [['b', 2]])
  })
})
