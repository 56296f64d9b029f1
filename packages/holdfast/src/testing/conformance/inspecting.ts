/** The operators' view: check, inspect and list. */
import assert from 'node:assert/strict'
import { publicIdOf } from '../../base/ids.ts'
import { compareNames } from '../../base/names.ts'
import { type Finding, LOCK_CAPACITY } from '../../spi.ts'
import type { Actor } from './actor.ts'
import { call, expectMs, request, secretOf, tokenOf, topic } from './toolbox.ts'

export const inspectingCases = topic('check, inspect and list', [
  {
    rule: 'C153',
    title: 'a check knows the current holder, by id and token and name together',
    touches: 'client',
    needs: ['fencing'],
    async play(stage) {
      const ada = await stage.actor()
      const [held, other] = [await ada.take('x'), await ada.take('y')]
      const shown = { name: 'x', id: publicIdOf(held.attempt), token: tokenOf(held) }
      const { backend } = await stage.actor()
      assert.equal(await backend.check(shown, call()), true)
      assert.equal(await backend.check({ ...shown, token: tokenOf(held) + 1n }, call()), false)
      assert.equal(await backend.check({ ...shown, id: publicIdOf(other.attempt) }, call()), false)
      assert.equal(await backend.check({ ...shown, name: 'y' }, call()), false)
      await ada.release(held)
      assert.equal(await backend.check(shown, call()), false)
    },
  },
  {
    rule: 'C154',
    title: 'T56 a check says no to an expired holder, and to the predecessor of the holder',
    needs: ['fencing'],
    async play(stage) {
      const [ada, bob] = await stage.mortalAndOne()
      const held = await ada.take('x')
      const shown = { name: 'x', id: publicIdOf(held.attempt), token: tokenOf(held) }
      await stage.outlive(ada)
      assert.equal(await bob.backend.check(shown, call()), false)
      await bob.take('x')
      assert.equal(await bob.backend.check(shown, call()), false)
    },
  },
  {
    rule: 'C155',
    title: 'a holder is shown with its label, owner, session, mode, weight, token, note and times',
    touches: 'client',
    async play(stage) {
      const ada = await stage.actor({ holder: 'ada@host-1', ttlMs: stage.ttlMs * 10 })
      const held = await ada.take(request('x', { note: 'nightly run', owner: 'order 7' }))
      await stage.passTime(stage.ttlMs)
      const found = await stage.inspect('x')
      const [holder] = found?.holders ?? []
      assert(found !== null && holder !== undefined)
      const { heldForMs, expiresInMs, ...facts } = holder
      assert.deepEqual(facts, {
        id: publicIdOf(held.attempt),
        holder: 'ada@host-1',
        owner: 'order 7',
        session: publicIdOf(ada.session.id),
        ttlMs: ada.session.ttlMs,
        mode: 'exclusive',
        weight: LOCK_CAPACITY,
        token: held.token,
        note: 'nightly run',
      })
      const toleranceMs = stage.world.resolutionMs * 2
      expectMs('held for', heldForMs, around(stage.ttlMs, toleranceMs))
      // Missing where the engine cannot tell.
      if (expiresInMs !== undefined)
        expectMs('expires in', expiresInMs, { min: stage.ttlMs * 8 - toleranceMs, max: ada.session.ttlMs })
      assert.equal(found.name, 'x')
      assert.equal(found.capacity, LOCK_CAPACITY)
      assert.equal(found.closedForMs ?? 0, 0)
      assert.deepEqual(found.waiters, [])
    },
  },
  {
    rule: 'C156',
    title: 'waiters are shown in the order of the queue, with label, owner, session, mode, note and time',
    touches: 'client',
    needs: ['queue'],
    async play(stage) {
      const [ada, bob, eve] = [
        await stage.actor(),
        await stage.actor({ holder: 'bob' }),
        await stage.actor({ holder: 'eve' }),
      ]
      await ada.take('x')
      const waits = [
        await bob.enqueue(request('x', { note: 'first', owner: 'order 8' })),
        await eve.enqueue('x'),
        await bob.enqueue('x'),
      ]
      await stage.passTime(stage.ttlMs)
      const waiters = (await stage.inspect('x'))?.waiters ?? []
      assert.deepEqual(
        waiters.map(({ id, holder, owner, note, mode, weight, session, ttlMs }) => [
          ...[id, holder, owner, note, mode, weight],
          ...[session, ttlMs],
        ]),
        [
          [waits[0]?.id, 'bob', 'order 8', 'first', 'exclusive', LOCK_CAPACITY, ...sessionOf(bob)],
          [waits[1]?.id, 'eve', undefined, undefined, 'exclusive', LOCK_CAPACITY, ...sessionOf(eve)],
          [waits[2]?.id, 'bob', undefined, undefined, 'exclusive', LOCK_CAPACITY, ...sessionOf(bob)],
        ],
      )
      for (const { waitingForMs } of waiters)
        expectMs('waiting for', waitingForMs, around(stage.ttlMs, stage.world.resolutionMs * 2))
    },
  },
  {
    rule: 'C157',
    title: 'nothing that is shown contains a secret: no attempt, no session id, no handle',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const held = await ada.take(request('x', { note: 'a note' }))
      const waiting = bob.session.enqueue === undefined ? undefined : await bob.enqueue('x')
      const shown = JSON.stringify([await stage.inspect('x'), await stage.list()], (_, value: unknown) =>
        typeof value === 'bigint' ? value.toString() : value,
      )
      const secrets = [held.attempt, waiting?.request.attempt ?? held.attempt].flatMap((attempt) => [
        attempt,
        secretOf(attempt),
      ])
      for (const actor of [ada, bob]) {
        secrets.push(actor.session.id)
        for (const value of Object.values(actor.session.handle))
          if (typeof value === 'string' && value !== actor.holder) secrets.push(value)
      }
      for (const secret of secrets) assert(!shown.includes(secret), 'a secret is shown')
      assert(shown.includes(publicIdOf(held.attempt)))
    },
  },
  {
    rule: 'C158',
    title: 'what is not in use is not found, and an empty prefix lists everything',
    async play(stage) {
      const ada = await stage.actor()
      assert.equal(await stage.inspect('x'), null)
      assert.deepEqual(await stage.list(), [])
      await ada.take('x')
      await ada.take('y')
      assert.deepEqual(await stage.list('z'), [])
      assert.deepEqual(
        (await stage.list('')).map((state) => state.name),
        ['x', 'y'],
      )
    },
  },
  {
    rule: 'C159',
    title: "a page of a list is in the order of the names' bytes",
    touches: 'client',
    async play(stage) {
      const ada = await stage.actor()
      // In UTF-16 the surrogate halves of an emoji sort before U+FF5E, in UTF-8 after it.
      const names = ['b', 'a', 'B', 'a/b', 'a-b', 'a0', 'ä', '～', '🦀', 'é', '日本', 'a/b/c', '10', '9']
      for (const name of names) await ada.take(name)
      const found: string[] = []
      for (let cursor: string | null | undefined; cursor !== null; ) {
        const page = { limit: 1_000, ...(cursor !== undefined && { cursor }) }
        const { items, next } = await ada.backend.list('', page, call())
        const listed = items.map(({ name }) => name)
        assert.deepEqual(listed, listed.toSorted(compareNames))
        found.push(...listed)
        cursor = next
      }
      assert.deepEqual([...new Set(found)].toSorted(compareNames), names.toSorted(compareNames))
    },
  },
  {
    rule: 'C160',
    title: 'a prefix is taken literally: %, _, *, ?, [ and \\ stand for themselves, and case counts',
    touches: 'client',
    async play(stage) {
      const ada = await stage.actor()
      const names = ['a%b', 'a_b', 'a*b', 'a?b', 'a[b]', 'a\\b', 'axb', 'Axb', 'a/b', 'a b', "a'b"]
      for (const name of names) await ada.take(name)
      for (const name of names) {
        const prefix = name.slice(0, 2)
        const expected = names.filter((each) => each.startsWith(prefix)).toSorted(compareNames)
        const listed = (await stage.list(prefix)).map((state) => state.name)
        assert.deepEqual(listed, expected, `prefix ${prefix}`)
      }
      assert.equal((await stage.list('a')).length, names.length - 1)
      assert.deepEqual(await stage.list('%'), [])
      assert.deepEqual(await stage.list('*'), [])
    },
  },
  {
    rule: 'C242',
    title: 'a diagnosis has findings with a code, a severity and three texts, or is empty',
    touches: 'client',
    async play(stage) {
      const backend = await stage.client()
      const findings: unknown = (await backend.diagnose?.(call())) ?? []
      assert(Array.isArray(findings), `a list of findings, not ${JSON.stringify(findings)}`)
      for (const finding of findings as readonly Finding[]) {
        const { code, severity, what, why, fix } = finding
        const shown = JSON.stringify(finding)
        assert(['danger', 'warning', 'note'].includes(severity), `severity of ${shown}`)
        assert(/^[A-Z][A-Z0-9_]+$/.test(code), `code of ${shown}`)
        for (const text of [what, why, fix])
          assert(typeof text === 'string' && text.trim() !== '', `texts of ${shown}`)
      }
    },
  },
])

function around(ms: number, toleranceMs: number): { min: number; max: number } {
  return { min: ms / 2 - toleranceMs, max: ms * 1.5 + toleranceMs }
}

function sessionOf({ session }: Actor): readonly unknown[] {
  return [publicIdOf(session.id), session.ttlMs]
}
