import { startProxy } from 'holdfast-lab/faults'
import { startPostgres, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { advisoryLibraries as libraries } from '../../../../test/postgres/clients.ts'
import { Rig } from '../../../../test/postgres-advisory/rig.ts'
import { callWith } from '../../../base/aborting.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'

describe.runIf(wanted('postgres'))('postgres-advisory', () => {
  test.for(libraries)(
    'T56 G11 $name: a server that is down is an error, never an answer',
    async (library) => {
      await using server = await startPostgres()
      await using rig = new Rig(server)
      const backend = await rig.backend({ library, clients: { fetchTypes: false } })
      const open = () => backend.openSession({ id: newSessionId(), ttlMs: 30_000, holder: 'test' }, call())
      const session = await open()
      const held = request('x')
      const granted = await session.tryAcquire(held, call())
      await server.kill()
      const limited = () => callWith(AbortSignal.timeout(5_000))
      const down = { code: 'BACKEND_UNAVAILABLE' }
      await expect(backend.inspect('x', limited())).rejects.toMatchObject(down)
      await expect(backend.list('', { limit: 10 }, limited())).rejects.toMatchObject(down)
      const token = granted.kind === 'granted' ? granted.grant.token : 0n
      const holder = { name: 'x', id: held.attempt.slice(0, 22), token }
      await expect(backend.check(holder, limited())).rejects.toMatchObject(down)
      await expect(open()).rejects.toMatchObject(down)
      // Its locks have ended with its connection, and it says so instead of calling a name free or busy.
      await expect.poll(() => session.tryAcquire(request('y'), limited())).toEqual({ kind: 'session-gone' })
      await server.restart()
    },
  )

  test.for(libraries)(
    'T76 $name: calls in flight when their connection is reset are settled, and do not stop the calls after them',
    async (library) => {
      await using server = await startPostgres()
      await using proxy = await startProxy(server)
      await using rig = new Rig(server)
      const backend = await rig.backend({ library, through: proxy, clients: { fetchTypes: false } })
      // postgres.js may hand out a connection whose reset it has not read yet. The call says that nothing was applied.
      const open = async () => {
        for (;;)
          try {
            return await backend.openSession({ id: newSessionId(), ttlMs: 30_000, holder: 'test' }, call())
          } catch (error) {
            if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE') || error.outcome !== 'not-applied') throw error
          }
      }
      for (let round = 0; round < 3; round++) {
        const session = await open()
        proxy.drop('down')
        const running = [0, 1, 2].map((index) => session.tryAcquire(request(`${round} ${index}`), call()))
        const settled = Promise.allSettled(running)
        await expect.poll(() => proxy.swallowedBytes('down')).toBeGreaterThan(0)
        proxy.heal()
        // Its locks have ended with its connection.
        for (const result of await settled) {
          if (result.status === 'fulfilled') expect(result.value.kind).toBe('session-gone')
          else expect(result.reason).toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
        }
      }
      const after = await open()
      expect((await after.tryAcquire(request('after'), call())).kind).toBe('granted')
    },
  )
})
