/** Names and namespaces mean what they say, whatever characters they have. */
import assert from 'node:assert/strict'
import { listAll } from '../../kit/backend-kit.ts'
import { call, request, type Stage, topic } from './toolbox.ts'

/** All of them at once, by two clients: each is a name of its own, and comes back as it was. */
async function allAreDistinct(stage: Stage, names: readonly string[]): Promise<void> {
  const [ada, bob] = await stage.two()
  const grants = []
  for (const name of names) {
    const grant = await ada.take(name)
    assert.equal(grant.name, name)
    grants.push(grant)
  }
  for (const name of names) {
    await bob.expectBusy(name)
    assert.equal((await stage.inspect(name))?.name, name)
  }
  assert.equal((await stage.list()).length, names.length)
  assert.deepEqual(await ada.stayAlive({ held: grants }), [])
  for (const grant of grants) assert.equal(await ada.release(grant), 'released')
  assert.deepEqual(await stage.list(), [])
}

export const nameCases = topic('names and namespaces', [
  {
    rule: 'C161',
    title: 'T49 names of any script are distinct, also those that only look alike',
    touches: 'client',
    async play(stage) {
      await allAreDistinct(stage, [
        '日本語',
        '🦀',
        '🦀🦀',
        'ﬁ',
        'fi',
        'e\u0301',
        '\u00e9',
        'Straße',
        'STRASSE',
        'ı',
        'i',
        'I',
        'İ',
        '\u{10FFFF}',
        '\uFFFD',
      ])
    },
  },
  {
    rule: 'C162',
    title: 'names that look like statements, scripts or formats are only names',
    touches: 'client',
    async play(stage) {
      await allAreDistinct(stage, [
        "x'; DROP TABLE names; --",
        '"; SELECT 1; --',
        "' OR '1'='1",
        '$1',
        '$$',
        '{x}',
        '{{x}}',
        // biome-ignore lint/suspicious/noTemplateCurlyInString: it looks like a template, and is a name
        '${name}',
        "]] .. redis.call('flushall') .. [[",
        '%s%d%n',
        'KEYS[1]',
        '?',
        ':name',
        '@name',
        '\\',
        '\\0',
        '`',
        '#',
        'NULL',
        'undefined',
        '0',
        '-1',
        '1e3',
      ])
    },
  },
  {
    rule: 'C163',
    title: 'names of what every object has are only names',
    touches: 'client',
    async play(stage) {
      await allAreDistinct(stage, [
        '__proto__',
        'constructor',
        'prototype',
        'toString',
        'hasOwnProperty',
        'valueOf',
        'then',
        'length',
      ])
    },
  },
  {
    rule: 'C164',
    title: 'names of 255 bytes work, and differ in their last byte',
    touches: 'client',
    async play(stage) {
      await allAreDistinct(stage, [
        `${'n'.repeat(254)}a`,
        `${'n'.repeat(254)}b`,
        'n'.repeat(254),
        '€'.repeat(85),
        `${'/n'.repeat(127).slice(1)}`,
      ])
    },
  },
  {
    rule: 'C165',
    title: 'escapes, spaces and case are part of a name',
    touches: 'client',
    async play(stage) {
      await allAreDistinct(stage, [
        'a/b',
        'a%2Fb',
        'a%2fb',
        'a%252Fb',
        'a:b',
        'a b',
        'a+b',
        'ab',
        'ab ',
        ' ab',
        'AB',
        'a.b',
        'a..b',
        '...',
        '~',
        '-',
        '_',
      ])
    },
  },
  {
    rule: 'C166',
    title: 'a name and those below it are independent',
    async play(stage) {
      const [ada, bob] = await stage.two()
      const parent = await ada.take('a')
      await bob.take('a/b')
      await ada.take('a/b/c')
      await bob.expectBusy('a/b/c')
      assert.equal(await ada.release(parent), 'released')
      await ada.expectBusy('a/b')
      assert.equal((await stage.list('a/')).length, 2)
    },
  },
  {
    rule: 'C167',
    title: 'labels and notes come back as they were',
    touches: 'client',
    async play(stage) {
      const labels = [`o'neill "x" \\ %s`, '日本 🦀', '__proto__', '{"a":1}', 'l'.repeat(255)]
      const note = `${'n'.repeat(1_000)} '"\\ 🦀`
      for (const [index, label] of labels.entries()) {
        const actor = await stage.actor({ holder: label })
        await actor.take(request(`x${index}`, { note }))
        const [holder] = (await stage.inspect(`x${index}`))?.holders ?? []
        assert.equal(holder?.holder, label)
        assert.equal(holder?.note, note)
        assert.equal(await actor.operator.force(`x${index}`, (found) => found.holder === label), 1)
      }
    },
  },
  {
    rule: 'C168',
    title: 'namespaces are separate: one name, two holders, and neither sees the other',
    async play(stage) {
      const [here, there] = [
        await stage.actor({ on: await stage.client({ namespace: 'here' }), holder: 'me' }),
        await stage.actor({ on: await stage.client({ namespace: 'there' }), holder: 'me' }),
      ]
      const held = await here.take('x')
      await there.take('x')
      await there.take('y')
      assert.equal((await listAll(here.backend, '', call())).length, 1)
      assert.equal((await listAll(there.backend, '', call())).length, 2)
      assert.equal(await here.backend.inspect('y', call()), null)
      assert.equal(await there.operator.force('x'), 1)
      await here.expectHolding(held)
    },
  },
  {
    rule: 'C169',
    title: 'where a namespace ends and a name begins is never mistaken',
    touches: 'client',
    async play(stage) {
      const pairs = [
        ['a', 'b/c'],
        ['a/b', 'c'],
        ['a', 'b:c'],
        ['a:b', 'c'],
        ['a', 'b%3Ac'],
        ['A', 'b/c'],
      ] as const
      for (const [namespace, name] of pairs) {
        const actor = await stage.actor({ on: await stage.client({ namespace }) })
        await actor.take(name)
        const listed = await listAll(actor.backend, '', call())
        assert(
          listed.every((state) => pairs.some(([space, each]) => space === namespace && each === state.name)),
        )
      }
    },
  },
])
