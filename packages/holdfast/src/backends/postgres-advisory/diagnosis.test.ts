import { startPostgres, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { Rig } from '../../../test/postgres-advisory/rig.ts'
import { call } from '../../testing/conformance/requests.ts'

describe.runIf(wanted('postgres'))('the diagnosis of postgres-advisory', () => {
  test('finds a server that has fewer connections than the backend may open, and settings that endanger tokens', async () => {
    await using server = await startPostgres({ settings: { max_connections: '40' } })
    await using rig = new Rig(server)
    const codes = async (maxConnections: number) =>
      (await (await rig.backend({ maxConnections })).diagnose(call())).map(({ code }) => code)
    expect(await codes(10)).toEqual(['HOLDFAST_POSTGRES_FSYNC'])
    expect(await codes(50)).toEqual(['HOLDFAST_POSTGRES_FSYNC', 'HOLDFAST_POSTGRES_CONNECTIONS'])
  }, 60_000)
})
