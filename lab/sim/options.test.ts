import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { tmpdir } from 'node:os'
import { fileURLToPath } from 'node:url'
import { describe, test } from 'vitest'
import { runBatch } from './batch.ts'
import { readSimOptions } from './options.ts'
import { seedsOfCommit, seedsOfCommitId, withoutCommit } from './seeds.ts'

const read = (line: string) => readSimOptions(line.split(' ').filter((word) => word !== ''))

describe('what the simulation can be asked for', () => {
  test('many seeds, by default 2000 from the first on', () => {
    const batch = { kind: 'batch', seeds: 2_000, from: 1, workers: 2, mode: undefined, workload: undefined }
    assert.deepEqual(read(''), batch)
    assert.deepEqual(read('--seeds 5 --from 7 --workers 1 --mode guard --workload election'), {
      kind: 'batch',
      seeds: 5,
      from: 7,
      workers: 1,
      mode: 'guard',
      workload: 'election',
    })
  })

  test('fresh seeds: others each time, far from the fixed ones', () => {
    const [one, other] = [read('--fresh --seeds 5'), read('--fresh')]
    assert.ok(one.kind === 'batch' && other.kind === 'batch')
    assert.equal(one.seeds, 5)
    assert.notEqual(one.from, other.from)
    for (const { from } of [one, other]) assert.ok(from >= 2 ** 32 && Number.isSafeInteger(from + 1e9))
  })

  test('one seed', () => {
    const replay = {
      kind: 'replay',
      seed: 0,
      mode: undefined,
      workload: undefined,
      keep: undefined,
      trace: false,
    }
    assert.deepEqual(read('--seed 0'), replay)
    assert.deepEqual(read('--seed 9007199254740991 --trace --keep 1,2'), {
      ...replay,
      seed: 9007199254740991,
      trace: true,
      keep: '1,2',
    })
  })

  test.each<[string, RegExp]>([
    ['--workload coffee', /no workload coffee, there are locks, election, partitions/],
    ['--seeds 0', /--seeds must be a whole number of at least 1, not 0/],
    ['--seeds=-3', /--seeds must be a whole number of at least 1, not -3/],
    ['--seeds 1.5', /--seeds must be a whole number/],
    ['--seeds 1e3', /--seeds must be a whole number/],
    ['--seeds many', /--seeds must be a whole number/],
    ['--seeds=', /--seeds must be a whole number/],
    ['--from 0', /--from must be a whole number of at least 1/],
    ['--workers 0', /--workers must be a whole number of at least 1/],
    ['--seed x', /--seed must be a whole number of at least 0, not x/],
    ['--seed 9007199254740992', /--seed must stay below 2\^53/],
    ['--seeds 9007199254740993', /--seeds must stay below 2\^53/],
    ['--from 9007199254740991 --seeds 10', /seeds must stay below 2\^53/],
    ['--seed 1 --seeds 5', /--seed replays one seed, so --seeds means nothing with it/],
    ['--seed 1 --from 5', /--from means nothing with it/],
    ['--seed 1 --workers 2', /--workers means nothing with it/],
    ['--seed 1 --fresh', /--fresh means nothing with it/],
    ['--fresh --from 5', /--fresh chooses the first seed, so --from means nothing with it/],
    ['--keep 1', /--keep and --trace need --seed/],
    ['--trace', /--keep and --trace need --seed/],
    ['--mode slow', /no mode slow, there are safety, guard, liveness/],
    ['--sead 1', /Unknown option '--sead'/],
    ['500', /Unexpected argument '500'/],
  ])('%s is refused', (line, message) => {
    assert.throws(() => read(line), message)
  })

  test('the command says what is wrong, shows its usage and ends with 2', () => {
    const script = fileURLToPath(new URL('../../scripts/sim.ts', import.meta.url))
    const args = ['--disable-warning=ExperimentalWarning', script, '--seed', '1', '--seeds', '2']
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' })
    assert.equal(status, 2)
    assert.equal(stdout, '')
    assert.match(stderr, /^--seed replays one seed/)
    assert.match(stderr, /--seeds N {6}how many seeds/)
  })
})

describe('seeds of a commit', () => {
  test('follow from its id, and differ between commits', () => {
    const id = '2481cee7b5a55d18847519eb41bd2032d22e0b29'
    assert.deepEqual(seedsOfCommitId(id), { from: 2 ** 32 + 0x2481cee7b5a, origin: 'commit 2481cee7b5a5' })
    assert.notEqual(seedsOfCommitId(id).from, seedsOfCommitId(`3${id.slice(1)}`).from)
  })

  test('are a stated constant where there is no commit', () => {
    assert.equal(seedsOfCommit(tmpdir()), withoutCommit)
    assert.equal(seedsOfCommitId('HEAD'), withoutCommit)
    assert.equal(withoutCommit.from, 500_000_001)
  })
})

describe('a batch', () => {
  test('says which seeds it runs, as a command that runs them again', () => {
    const script = fileURLToPath(new URL('../../scripts/sim.ts', import.meta.url))
    const args = ['--disable-warning=ExperimentalWarning', script, '--fresh', '--seeds', '2']
    const { stdout } = spawnSync(process.execPath, args, { encoding: 'utf8' })
    const from = Number(/^Seeds (\d+) to \d+: npm run sim -- --from \1 --seeds 2$/m.exec(stdout)?.[1])
    assert.ok(from >= 2 ** 32, stdout)
    assert.match(stdout, /^2 runs of 120 simulated seconds/m)
  })

  test('fails if a worker ends before it has run its share, however contentedly', async () => {
    const nodeArgs = ['--import', 'data:text/javascript,process.exit(0)']
    await assert.rejects(
      runBatch({ from: 1, seeds: 4, nodeArgs }),
      /was to run 4 seeds and has run 0: nothing is shown by it/,
    )
  })
})
