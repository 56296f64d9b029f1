import { connect } from 'node:net'
import { wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { startNetwork } from './network.ts'
import { run, shortRun } from './short-run.ts'

test('a network that was stopped refuses connections', async () => {
  const network = await startNetwork(['redis://127.0.0.1:1/0'], 1)
  const through = new URL(network.through('redis://127.0.0.1:1/7'))
  expect(through.pathname).toBe('/7')
  expect(through.port).not.toBe('1')
  network.stop()
  await expect.poll(() => connects(Number(through.port))).toBe(false)
})

test('an engine without a server has no network', async () => {
  await expect(run('memory', '--rtt', '2')).rejects.toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--rtt is for servers, and memory has none.'),
  })
})

describe.runIf(wanted('redis'))('the benchmark of redlock over a network', () => {
  test('no pair of any library is quicker than its two round trips, and the report says which', async () => {
    const options = ['redlock', '--rtt', '3', '--seconds', '0.005', '--rounds', '1']
    const [subject] = (await shortRun(...options)).subjects
    expect(subject?.name).toBe('redlock-rtt-3')
    expect(subject?.remarks.join()).toMatch(/a round trip of 3 ms, measured [\d.]+ ms/)
    const contenders = subject?.comparisons.flatMap((comparison) => comparison.contenders) ?? []
    expect(contenders.length).toBeGreaterThan(0)
    for (const { p50Ms } of contenders) expect(p50Ms).toBeGreaterThanOrEqual(6)
  })
})

function connects(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => resolve(true))
    socket.once('error', () => resolve(false))
    socket.once('close', () => socket.destroy())
  })
}
