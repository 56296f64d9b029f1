import assert from 'node:assert/strict'
import { wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { azureExceptions, objectExceptions, objectGuardWorld } from '../../test/object/guard-world.ts'
import { mapStore } from '../../test/object/map-store.ts'
import { type OpenedStore, openStore } from '../../test/object/open-store.ts'
import { engineOfStore, storeNames } from '../../test/object/stores.ts'
import { BackendUnavailableError } from '../base/errors.ts'
import { makeFence } from '../base/fence.ts'
import { describeGuard } from '../testing/describe-guard.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import {
  type AzureContainer,
  azureStore,
  type ObjectStore,
  objectGuard,
  type S3Client,
  s3Store,
} from './object.ts'

const fence = (token: bigint, name = 'n') =>
  makeFence({ issuer: 'i', name, mode: 'exclusive', token, grant: `g${token}` })
const text = (body: Uint8Array | null | undefined) => (body ? new TextDecoder().decode(body) : null)

for (const name of storeNames) {
  describe.runIf(wanted(engineOfStore[name]))(`objectGuard on ${name}`, () => {
    let opened: OpenedStore
    let tests = 0
    beforeAll(async () => {
      opened = await openStore(name)
    })
    afterAll(() => opened.close())

    /** Keys of a test's own. */
    const inFolder = () => {
      const folder = `test-${++tests}/`
      return { store: opened.store, folder, key: (each: string) => folder + each }
    }
    const keysIn = async (folder: string) => {
      const keys = []
      for await (const key of opened.store.list(folder)) keys.push(key.slice(folder.length))
      return keys.sort()
    }

    describeGuard({
      name: `objectGuard on ${name}`,
      describe,
      test,
      createWorld: async () => objectGuardWorld(opened.store),
      except: name === 'azure' ? azureExceptions : objectExceptions,
    })

    test('requests: the first read takes 3, later ones 2, a write 2, and a first write 3', async () => {
      const { folder: _, ...own } = inFolder()
      const requests: string[] = []
      const guard = objectGuard({ ...own, store: counting(opened.store, requests) })
      const during = async (call: () => Promise<unknown>) => {
        requests.length = 0
        await call()
        return requests.join(' ')
      }
      const [one, two, three] = [fence(1n), fence(2n), fence(3n)]
      assert.equal(await during(() => guard.put(one, 'one')), 'get put put')
      assert.equal(await during(() => guard.put(one, 'two')), 'put put')
      assert.equal(await during(() => guard.get(two)), 'get put get')
      assert.equal(await during(() => guard.get(two)), 'get get')
      assert.equal(await during(() => guard.put(two, 'three')), 'put put')
      assert.equal(await during(() => guard.delete(two)), 'put')
      const update = () => guard.run(three, async (tx) => tx.put(`${text(await tx.get())}, four`))
      assert.equal(await during(update), 'get put put put')
      assert.equal(await during(update), 'get get put put')
    })

    test('T40 a holder that writes with what it knew is refused when another process was there', async () => {
      const { folder: _, ...own } = inFolder()
      const [old, successor] = [objectGuard(own), objectGuard(own)]
      const holder = fence(1n)
      await old.put(holder, 'old')
      assert.equal(text(await successor.get(fence(2n))), 'old')
      await assert.rejects(old.put(holder, 'late'), { code: 'FENCE_STALE' })
      await assert.rejects(old.delete(holder), { code: 'FENCE_STALE' })
      assert.equal(text(await successor.get(fence(2n))), 'old')
    })

    test('a write over what has changed since it was read is a conflict, and without a read it is not', async () => {
      const { folder: _, ...own } = inFolder()
      const [one, other] = [objectGuard(own), objectGuard(own)]
      const both = fence(1n)
      await one.put(both, 'first')
      const overtaken = one.run(both, async (tx) => {
        await tx.get()
        await other.put(both, 'second')
        tx.put('third')
      })
      await assert.rejects(overtaken, { code: 'CONFLICT' })
      assert.equal(text(await one.get(both)), 'second')
      await other.put(both, 'fourth')
      await one.put(both, 'fifth')
      assert.equal(text(await other.get(both)), 'fifth')
    })

    test('a run sees one version, also when it reads twice and the first one is collected meanwhile', async () => {
      const { folder: _, ...own } = inFolder()
      const [one, other] = [objectGuard(own), objectGuard(own)]
      const both = fence(2n)
      await one.put(fence(1n), 'first')
      const overtaken = one.run(both, async (tx) => {
        const before = text(await tx.get())
        await other.put(both, 'second')
        assert.equal(await other.collect('n'), 1)
        assert.equal(text(await tx.get()), before)
        tx.put(`${before}, third`)
      })
      await assert.rejects(overtaken, { code: 'CONFLICT' })
      assert.equal(text(await one.get(both)), 'second')
    })

    test('a deleted object leaves a head without data, which still refuses older holders', async () => {
      const { folder: _, ...own } = inFolder()
      const guard = objectGuard(own)
      await guard.put(fence(1n), 'data')
      await guard.run(fence(2n), (tx) => tx.delete())
      assert.equal(await guard.get(fence(2n)), null)
      await assert.rejects(guard.put(fence(1n), 'late'), { code: 'FENCE_STALE' })
      await guard.put(fence(2n), 'again')
      assert.equal(text(await guard.get(fence(2n))), 'again')
    })

    test('collect deletes data of earlier holders, and neither the current data nor what a holder may still refer to', async () => {
      const { folder, ...own } = inFolder()
      const guard = objectGuard(own)
      for (const body of ['one', 'two']) await guard.put(fence(1n), body)
      for (const token of [1, 2])
        await opened.store.put(`${folder}n.d/${token}-${'x'.repeat(22)}`, 'in flight')
      await opened.store.put(`${folder}n.d/notes.txt`, 'of somebody else')
      assert.equal(await guard.collect('n'), 0, 'the holder of token 1 may still write')
      await guard.get(fence(2n))
      assert.equal(await guard.collect('n'), 2)
      assert.equal(text(await guard.get(fence(2n))), 'two')
      await guard.put(fence(2n), 'three')
      assert.equal(await guard.collect('n'), 1)
      const left = (await keysIn(folder)).map((key) => key.replace(/-[\w-]{22}$/, '-'))
      assert.deepEqual(left.sort(), ['n.d/2-', 'n.d/2-', 'n.d/notes.txt', 'n.head'])
      assert.equal(await guard.collect('never-seen'), 0)
      const shared = makeFence({ issuer: 'i', name: 'n', mode: 'shared', token: 9n, grant: 'g9' })
      await guard.get(shared)
      assert.equal(await guard.collect('n'), 0, 'a shared holder does not end an older one')
    })

    test('a holder whose data is collected while it reads looks again, and is refused', async () => {
      const { folder: _, ...own } = inFolder()
      const successor = objectGuard(own)
      await successor.put(fence(1n), 'one')
      let gets = 0
      const store: ObjectStore = {
        ...opened.store,
        async get(...call) {
          if (++gets === 2) {
            await successor.put(fence(2n), 'two')
            assert.equal(await successor.collect('n'), 1)
          }
          return opened.store.get(...call)
        },
      }
      await assert.rejects(objectGuard({ ...own, store }).get(fence(1n)), { code: 'FENCE_STALE' })
      assert.equal(text(await successor.get(fence(2n))), 'two')
    })

    test('data that was deleted by others, and a head that is none, are errors that say so', async () => {
      const { folder, ...own } = inFolder()
      const guard = objectGuard(own)
      await guard.put(fence(1n), 'data')
      for (const key of await keysIn(`${folder}n.d/`)) await opened.store.delete(`${folder}n.d/${key}`)
      await assert.rejects(guard.get(fence(1n)), /was deleted by others/)
      for (const body of ['not JSON', '{}', '{ "v": 2 }']) {
        await opened.store.put(`${folder}n.head`, body)
        await assert.rejects(guard.get(fence(1n)), {
          code: 'INVALID_ARGUMENT',
          message: /n\.head.*remove it/,
        })
      }
    })

    test('a bucket or container that is missing is not an object that is missing', async () => {
      const guard = objectGuard({ store: opened.elsewhere })
      const failure = {
        code: 'BACKEND_UNAVAILABLE',
        outcome: 'not-applied',
        message: /NotFound|NoSuchBucket/,
      }
      await assert.rejects(guard.get(fence(1n)), failure)
      await assert.rejects(guard.put(fence(1n), 'data'), failure)
    })

    test('many writers at once: each write is told truly, and the last one told is there', async () => {
      const { folder: _, ...own } = inFolder()
      const guards = Array.from({ length: 8 }, () => objectGuard(own))
      const told = await Promise.allSettled(
        guards.map((guard, index) => guard.run(fence(BigInt(index + 1)), (tx) => tx.put(`${index + 1}`))),
      )
      const done = told.flatMap(({ status }, index) => (status === 'fulfilled' ? [index + 1] : []))
      for (const each of told)
        if (each.status === 'rejected') assert.equal(each.reason.code, 'FENCE_STALE', String(each.reason))
      assert.ok(done.includes(8))
      assert.equal(text(await guards[0]?.get(fence(9n))), '8')
    })
  })
}

describe('objectGuard', () => {
  const nothing: ObjectStore = {
    get: async () => null,
    put: async () => null,
    delete: async () => {},
    async *list() {},
  }

  test('bad input is refused', async () => {
    const invalid = { code: 'INVALID_ARGUMENT' }
    const wrong: unknown[] = [
      undefined,
      {},
      { store: {} },
      { store: { ...nothing, list: undefined } },
      { store: nothing, key: 'report' },
      { store: nothing, callTimeoutMs: 0 },
      { store: nothing, forgetAfterMs: 1_000 },
      { store: nothing, bucket: 'b' },
    ]
    for (const options of wrong)
      assert.throws(() => objectGuard(options as { store: ObjectStore }), invalid, JSON.stringify(options))
    for (const key of ['report.head', '', 5, 'x'.repeat(901)]) {
      const guard = objectGuard({ store: nothing, key: () => key as string })
      await assert.rejects(async () => guard.put(fence(1n), 'data'), invalid)
      await assert.rejects(async () => guard.highest('n'), invalid)
      await assert.rejects(guard.collect('n'), invalid)
    }
    const guard = objectGuard({ store: nothing })
    await assert.rejects(async () => guard.put(fence(1n, 'report.head'), 'data'), invalid)
    for (const body of [undefined, null, 5, {}])
      await assert.rejects(async () => guard.put(fence(1n), body as string), invalid)
    await assert.rejects(async () => guard.put(fence(1n), 'data', { type: 'text/plain' } as object), invalid)
    assert.throws(() => s3Store({} as S3Client, 'b'), /new S3\(/)
    assert.throws(() => azureStore({} as never), /ContainerClient/)
  })

  test('enter, prune and several proofs are UNSUPPORTED', async () => {
    const guard = objectGuard({ store: nothing })
    const unsupported = { code: 'UNSUPPORTED' }
    await assert.rejects(guard.enter({} as never, fence(1n)), unsupported)
    await assert.rejects(guard.prune({ untouchedForMs: 0 }), unsupported)
    await assert.rejects(
      guard.run([fence(1n, 'a'), fence(2n, 'b')], () => {}),
      unsupported,
    )
  })

  test('a call inside a run is refused with an error that says so, also for another object', async () => {
    const store = mapStore()
    const guard = objectGuard({ store })
    await guard.run(fence(1n, 'a'), async () => {
      const refusal = { code: 'INVALID_ARGUMENT', message: /one object: call it before the run or after it/ }
      for (const name of ['a', 'b']) await assert.rejects(guard.get(fence(2n, name)), refusal)
    })
    assert.equal(await guard.get(fence(1n, 'b')), null)
  })

  test('T16 a store that never answers is given up after callTimeoutMs, and the outcome of a write is unknown', async () => {
    const clock = createFakeClock()
    const never = () => new Promise<never>(() => {})
    const silent = objectGuard({ store: { ...nothing, get: never }, clock, callTimeoutMs: 1_000 })
    const reading = assert.rejects(silent.get(fence(1n)), {
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'not-applied',
      message: /no answer within 1000 ms/,
    })
    await clock.advance(1_000)
    await reading
    let puts = 0
    const put = async () => (++puts === 1 ? 'data' : never())
    const half = objectGuard({ store: { ...nothing, put }, clock, callTimeoutMs: 1_000 })
    const writing = assert.rejects(half.put(fence(1n), 'data'), {
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'unknown',
    })
    for (let tries = 0; tries < 5; tries++) await clock.advance(1_000)
    await writing
  })

  test('T16 collect gives up a list and a deletion that are never answered', async () => {
    const clock = createFakeClock()
    const store = mapStore()
    const sound = objectGuard({ store })
    await sound.put(fence(1n), 'one')
    await sound.put(fence(2n), 'two')
    const never = () => new Promise<never>(() => {})
    const stopped: boolean[] = []
    const list: ObjectStore['list'] = (_, { signal } = {}) => {
      signal?.addEventListener('abort', () => stopped.push(true))
      return { [Symbol.asyncIterator]: () => ({ next: never }) }
    }
    for (const silent of [{ list }, { delete: never }]) {
      const guard = objectGuard({ store: { ...store, ...silent }, clock, callTimeoutMs: 1_000 })
      const collecting = assert.rejects(guard.collect('n'), { code: 'BACKEND_UNAVAILABLE' })
      while (clock.pendingTimers === 0 || store.objects.size === 0) await new Promise(setImmediate)
      await clock.advance(1_000)
      await collecting
      const cancelled = new AbortController()
      const aborted = assert.rejects(guard.collect('n', { signal: cancelled.signal }), /planted/)
      await new Promise(setImmediate)
      cancelled.abort(new Error('planted'))
      await aborted
    }
    assert.deepEqual(stopped, [true, true])
    assert.equal(clock.pendingTimers, 0)
  })

  test('an abort ends a call at once: before a write of the head nothing was applied, and during it the outcome is unknown', async () => {
    const never = () => new Promise<never>(() => {})
    const isHead = (key: string) => key.endsWith('.head')
    const body = new Uint8Array()
    const planted = new Error('planted')
    const cases: readonly (readonly [string, Partial<ObjectStore>, 'get' | 'put', 'reason' | 'unknown'])[] = [
      ['reading the head', { get: never }, 'put', 'reason'],
      ['writing the data', { put: never }, 'put', 'reason'],
      [
        'writing the head',
        { put: (key) => (isHead(key) ? never() : Promise.resolve('e')) },
        'put',
        'unknown',
      ],
      ['raising the mark', { put: never }, 'get', 'unknown'],
      [
        'looking after a write that was not answered',
        {
          put: (key) => (isHead(key) ? Promise.reject(new Error('lost')) : Promise.resolve('e')),
          get: (() => {
            let gets = 0
            return () => (++gets === 1 ? Promise.resolve(null) : never())
          })(),
        },
        'put',
        'unknown',
      ],
    ]
    for (const [when, store, call, expected] of cases) {
      const guard = objectGuard({ store: { ...nothing, ...store } })
      const { signal, abort } = (() => {
        const controller = new AbortController()
        return { signal: controller.signal, abort: () => controller.abort(planted) }
      })()
      const calling =
        call === 'get' ? guard.get(fence(1n), { signal }) : guard.put(fence(1n), body, { signal })
      const rejected = assert.rejects(calling, (error: Error & { outcome?: string }) => {
        assert.equal(error === planted ? 'reason' : error.outcome, expected, when)
        return true
      })
      await new Promise((resolve) => setTimeout(resolve, 0))
      abort()
      await rejected
    }
  })

  test('a refusal says that nothing was applied only if the client has sent one copy', async () => {
    const failing = (error: object) => {
      const fails = () => Promise.reject(Object.assign(new Error('planted'), error))
      return { getObject: fails, putObject: fails, deleteObject: fails, listObjectsV2: fails }
    }
    const outcomeOf = async (work: Promise<unknown>) =>
      work.then(
        () => 'answered',
        ({ outcome }) => outcome,
      )
    const s3 = (httpStatusCode: number, attempts: number) =>
      s3Store(failing({ $metadata: { httpStatusCode, attempts } }), 'b')
    assert.equal(await outcomeOf(s3(403, 1).put('k', '')), 'not-applied')
    assert.equal(await outcomeOf(s3(403, 2).put('k', '')), 'unknown')
    assert.equal(await outcomeOf(s3(500, 1).put('k', '')), 'unknown')
    assert.equal(await outcomeOf(s3(412, 2).put('k', '')), 'answered')
    const fails = () => Promise.reject(Object.assign(new Error('planted'), { statusCode: 403 }))
    const blob = { download: fails, upload: fails, deleteIfExists: fails }
    const azure = azureStore({
      getBlockBlobClient: () => blob,
      listBlobsFlat: () => ({ [Symbol.asyncIterator]: () => ({ next: fails }) }),
    })
    assert.equal(await outcomeOf(azure.put('k', '')), 'unknown')
    for (const store of [s3(500, 3), s3(403, 1), azure]) {
      assert.equal(await outcomeOf(store.get('k')), 'not-applied', 'nothing is applied by a read')
      assert.equal(await outcomeOf(store.list('k')[Symbol.asyncIterator]().next()), 'not-applied')
    }
  })

  test('data that the store has refused is not referred to, and a head without an ETag is not written over', async () => {
    const store = mapStore()
    const failure = { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' }
    await objectGuard({ store }).put(fence(1n), 'first')
    const refusing: ObjectStore = {
      ...store,
      put: async (key, ...rest) => (key.includes('.d/') ? null : store.put(key, ...rest)),
    }
    await assert.rejects(objectGuard({ store: refusing }).put(fence(1n), 'second'), failure)
    assert.equal(text(await objectGuard({ store }).get(fence(1n))), 'first')
    const strange: ObjectStore = {
      ...store,
      get: async (key) => ({ body: (await store.get(key))?.body ?? new Uint8Array(), etag: '' }),
      put: async () => assert.fail('a condition without an ETag is none'),
    }
    await assert.rejects(objectGuard({ store: strange }).get(fence(2n)), failure)
  })

  test('Azure: a key that its URL would turn into another one is refused', async () => {
    const asked: string[] = []
    const blob = {
      download: () => Promise.reject(Object.assign(new Error(), { statusCode: 404, code: 'BlobNotFound' })),
      upload: async () => ({ etag: 'e' }),
      deleteIfExists: async () => {},
    }
    const azure = azureStore({
      getBlockBlobClient: (name) => {
        asked.push(name)
        return blob
      },
      listBlobsFlat: () => ({
        [Symbol.asyncIterator]: () => ({ next: async () => ({ done: true, value: undefined }) }),
      }),
    } as AzureContainer)
    for (const key of ['a/../b', '../other/b', './a', 'a/./b', '..', '.', 'a/..', 'a\\b']) {
      await assert.rejects(async () => azure.get(key), { code: 'INVALID_ARGUMENT' }, key)
      await assert.rejects(async () => azure.put(key, ''), { code: 'INVALID_ARGUMENT' }, key)
    }
    assert.deepEqual(asked, [])
    for (const key of ['a..b', '.a', 'a.', '...', 'a/.../b']) assert.equal(await azure.get(key), null)
  })

  test('T10 a refusal of a second copy does not say that the first one will not arrive', async () => {
    const refusal = new BackendUnavailableError('s3', 'it answered 403', 'not-applied')
    const guardOf = (...answers: readonly Error[]) => {
      const left = ['data', ...answers]
      const put = async () => {
        const answer = left.shift() ?? refusal
        if (typeof answer === 'string') return answer
        throw answer
      }
      return objectGuard({ store: { ...nothing, put } })
    }
    const failure = (outcome: string) => ({ code: 'BACKEND_UNAVAILABLE', outcome })
    await assert.rejects(guardOf().put(fence(1n), 'data'), failure('not-applied'))
    await assert.rejects(guardOf(new Error('lost')).put(fence(1n), 'data'), failure('unknown'))
  })

  test('a transaction that is over cannot be used any more', async () => {
    const guard = objectGuard({ store: { ...nothing, put: async () => 'etag' } })
    const leaked = await guard.run(fence(1n), (tx) => tx)
    await assert.rejects(leaked.get(), { code: 'INVALID_ARGUMENT' })
    for (const use of [() => leaked.put('data'), () => leaked.delete()])
      assert.throws(use, { code: 'INVALID_ARGUMENT' })
  })
})

function counting(store: ObjectStore, requests: string[]): ObjectStore {
  return {
    ...store,
    get(...call) {
      requests.push('get')
      return store.get(...call)
    },
    put(...call) {
      requests.push('put')
      return store.put(...call)
    },
  }
}
