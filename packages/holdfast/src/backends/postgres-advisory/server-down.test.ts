import { startPostgres, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { libraries } from '../../../test/postgres/clients.ts'
import { Rig } from '../../../test/postgres-advisory/rig.ts'
import { call, request } from '../../testing/conformance/requests.ts'
import { newSessionId } from '../../testing/conformance/stage.ts'

describe.runIf(wanted('postgres'))('postgres-advisory', () => {
  test.for(libraries)(
    'T56 G11 $name: a server that is down is an error, never an answer',
    { timeout: 60_000 },
    async (library) => {
      await using server = await startPostgres()
      await using rig = new Rig(server)
      const backend = await rig.backend({ library, clients: { fetchTypes: false } })
      const open = () => backend.openSession({ id: newSessionId(), ttlMs: 30_000, holder: 'test' }, call())
      const session = await open()
      const held = request('x')
      const granted = await session.tryAcquire(held, call())
      await server.kill()
      const limited = () => ({ signal: AbortSignal.timeout(5_000) })
      const down = { code: 'BACKEND_UNAVAILABLE' }
      await expect(backend.inspect('x', limited())).rejects.toMatchObject(down)
      await expect(backend.list('', limited())).rejects.toMatchObject(down)
      const token = granted.kind === 'granted' ? granted.grant.token : 0n
      const holder = { name: 'x', id: held.attempt.slice(0, 22), token }
      await expect(backend.check(holder, limited())).rejects.toMatchObject(down)
      await expect(open()).rejects.toMatchObject(down)
      // Its locks have ended with its connection, and it says so instead of calling a name free or busy.
      await expect.poll(() => session.tryAcquire(request('y'), limited())).toEqual({ kind: 'session-gone' })
      await server.restart()
    },
  )
})
