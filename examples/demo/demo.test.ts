import { execFile } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

interface Round {
  readonly guarded: boolean
  readonly acknowledged: readonly string[]
  readonly held: readonly string[]
  readonly lost: readonly string[]
  readonly intact: boolean
  readonly balance: number
  readonly expectedBalance: number
  readonly events: readonly { readonly kind: string; readonly token?: string; readonly highest?: string }[]
}

const run = (options: string[], environment: NodeJS.ProcessEnv = {}) =>
  promisify(execFile)(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', join(import.meta.dirname, 'main.ts'), ...options],
    { env: { ...process.env, ...environment } },
  )

test.skipIf(process.platform === 'win32')(
  'the unguarded ledger loses an update, the guarded one refuses it and loses nothing',
  async () => {
    // A run that does not pass exits with another code than 0, and then this rejects.
    const { stdout } = await run(['--json'])
    const { passed, rounds } = JSON.parse(stdout) as { passed: boolean; rounds: Round[] }
    expect(passed).toBe(true)

    const [guarded, control] = [rounds.at(-1), rounds.at(-2)]
    expect(control).toMatchObject({ guarded: false, intact: false })
    expect(control?.lost.length).toBeGreaterThan(0)
    expect(control?.balance).toBeLessThan(control?.expectedBalance ?? 0)

    expect(guarded).toMatchObject({ guarded: true, intact: true, lost: [] })
    expect(guarded?.held.toSorted()).toEqual(guarded?.acknowledged.toSorted())
    const refused = guarded?.events.find(({ kind }) => kind === 'refused')
    expect(BigInt(refused?.token ?? 0)).toBeLessThan(BigInt(refused?.highest ?? 0))
  },
)

test('it explains itself, and refuses options that it does not know', async () => {
  expect((await run(['--help'])).stdout).toContain('--json')
  await expect(run(['--fast'])).rejects.toMatchObject({ code: 2, stderr: expect.stringContaining('--fast') })
})

test.skipIf(process.platform === 'win32')('an interrupted run leaves nothing behind', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-demo-test-'))
  try {
    // The sqlite backend keeps a folder for its sockets there as well, which all lockers of a user share.
    const left = () => readdirSync(folder).filter((name) => name.startsWith('holdfast-demo-'))
    const running = run(['--json'], { TMPDIR: folder })
    const interrupted = expect(running).rejects.toMatchObject({ code: 130 })
    await expect.poll(left).toHaveLength(1)
    running.child.kill('SIGINT')
    await interrupted
    expect(left()).toEqual([])
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
