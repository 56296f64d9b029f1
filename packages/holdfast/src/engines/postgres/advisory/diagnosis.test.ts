import { startPostgres, wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { Rig } from '../../../../test/postgres-advisory/rig.ts'
import { call } from '../../../testing/conformance/requests.ts'

describe.runIf(wanted('postgres'))('the diagnosis of postgres-advisory', () => {
  test('finds settings that endanger tokens', async () => {
    await using server = await startPostgres()
    await using rig = new Rig(server)
    const findings = await (await rig.backend()).diagnose(call())
    expect(findings.map(({ code }) => code)).toEqual(['HOLDFAST_POSTGRES_FSYNC'])
  })
})
