import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { createRig } from '../../test/rig.ts'
import { isHoldfastError } from '../base/errors.ts'
import type { Backend, NameState, PageRequest } from '../spi.ts'

describe('lists in pages', () => {
  test('T82 list collects all pages, in byte order and each name once', async () => {
    const rig = createRig()
    const asked: PageRequest[] = []
    const locker = rig.locker({
      wrap: (backend) => {
        const list = backend.list.bind(backend)
        // As an engine without an ordered index does it: in no order, and with a name on two pages.
        const shuffled: Backend['list'] = async (prefix, page, call) => {
          asked.push(page)
          const { items } = await list(prefix, { limit: 1_000 }, call)
          const at = Number(page.cursor ?? 0)
          const order = [2, 0, 2, 1].map((index) => items[index] as NameState)
          return { items: order.slice(at, at + 1), next: at === 3 ? null : String(at + 1) }
        }
        return Object.assign(backend, { list: shuffled })
      },
    })
    for (const name of ['a', 'b', 'c']) await locker.acquire(name)
    assert.deepEqual(
      (await locker.list()).map(({ name }) => name),
      ['a', 'b', 'c'],
    )
    assert.deepEqual(
      asked.map(({ cursor }) => cursor),
      [undefined, '1', '2', '3'],
    )
  })

  test('T82 the event loop turns between the pages of an engine that answers at once', async () => {
    const locker = createRig().locker()
    for (let i = 0; i < 2_500; i++) await locker.acquire(`n${i}`)
    let turns = 0
    const count = () => {
      turns++
      pending = setImmediate(count)
    }
    let pending = setImmediate(count)
    assert.equal((await locker.list()).length, 2_500)
    clearImmediate(pending)
    assert.ok(turns >= 2, `${turns} turns for three pages`)
  })

  test('listPage gives one page, and a cursor for the next', async () => {
    const locker = createRig().locker()
    for (const name of ['a', 'b', 'c']) await locker.acquire(name)
    const first = await locker.listPage('', { limit: 2 })
    assert.deepEqual(
      first.items.map(({ name }) => name),
      ['a', 'b'],
    )
    assert.ok(first.next !== null)
    const second = await locker.listPage('', { limit: 2, cursor: first.next })
    assert.deepEqual([second.items.map(({ name }) => name), second.next], [['c'], null])
  })

  test.each([0, 1.5, 10_001, '3'])('a limit of %s is refused', async (limit) => {
    await assert.rejects(
      createRig()
        .locker()
        .listPage('', { limit: limit as number }),
      {
        code: 'INVALID_ARGUMENT',
        argument: 'limit',
      },
    )
  })

  test('sessions are listed; an engine that cannot list them says so', async () => {
    const rig = createRig()
    const ada = rig.locker({ holder: 'ada' })
    await ada.acquire('a', { ttlMs: 5_000 })
    const { items, next } = await ada.sessions()
    assert.deepEqual(
      items.map(({ holder, ttlMs }) => [holder, ttlMs]),
      [['ada', 5_000]],
    )
    assert.equal(next, null)
    const [holder] = (await ada.inspect('a'))?.holders ?? []
    assert.equal(holder?.session, items[0]?.id)
    const blind = rig.locker({ wrap: (backend) => Object.assign(backend, { sessions: undefined }) })
    await assert.rejects(blind.sessions(), (error) => isHoldfastError(error, 'UNSUPPORTED'))
  })

  test('a diagnosis has the findings of the engine, or none', async () => {
    const rig = createRig()
    assert.deepEqual(await rig.locker().diagnose(), [])
    const finding = { code: 'HOLDFAST_X', severity: 'note', what: 'w', why: 'y', fix: 'f' } as const
    const locker = rig.locker({
      wrap: (backend) => Object.assign(backend, { diagnose: async () => [finding] }),
    })
    assert.deepEqual(await locker.diagnose(), [finding])
  })
})
