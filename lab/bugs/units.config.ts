/**
 * The unit tests that must notice a bug, each as a project of its own in which that bug is planted, and once without any.
 * Prints as JSON which tests were red.
 */
import { posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig, type Plugin } from 'vitest/config'
import type { Reporter } from 'vitest/node'
import { wanted } from '../servers/index.ts'
import { edited, library, type SourceBug } from './bug.ts'
import { sourceBugs } from './sources/index.ts'

export interface UnitRun {
  /** The bug's id, or `none`, with an engine if it needs its servers. */
  readonly bug: string
  readonly red: readonly string[]
  readonly passed: number
}

const root = fileURLToPath(new URL('../..', import.meta.url))
const bugs = sourceBugs.flatMap((bug) => (bug.foundBy.units ? [{ ...bug, ...bug.foundBy.units }] : []))
const onServers = Map.groupBy(
  bugs.filter(({ on }) => on !== undefined && wanted(on)),
  ({ on }) => on,
)
const inMemory = bugs.filter(({ on }) => on === undefined)

const reporter: Reporter = {
  onTestRunEnd(modules) {
    const runs = modules.map(({ project, children }): UnitRun => {
      const red = [...children.allTests('failed')].map(({ fullName }) => fullName)
      return { bug: project.name, red, passed: [...children.allTests('passed')].length }
    })
    process.stdout.write(JSON.stringify(runs))
  },
}

function planting({ id, edits }: SourceBug): Plugin {
  return {
    name: `planted: ${id}`,
    enforce: 'pre',
    transform(code, path) {
      const here = edits.filter(({ file }) => path.endsWith(`/${file}`))
      return here.length === 0 ? undefined : edited(code, here)
    },
  }
}

interface Tests {
  readonly files: readonly string[]
  /** An engine whose servers the tests need, and which of the tests are run then. */
  readonly on?: string | undefined
  readonly names?: readonly string[]
}

function project(name: string, { files, on, names = [] }: Tests, plugins: Plugin[]) {
  return {
    plugins,
    test: {
      name,
      include: [...new Set(files)].map((file) => posix.join(library, file)),
      // Fewer schedules of the proxy: each of its bugs shows in some hundreds.
      env: { HOLDFAST_TEST_ONLY: on ?? 'memory', HOLDFAST_SCHEDULES: '2000' },
      ...(on !== undefined && {
        testNamePattern: new RegExp(`\\b(${names.join('|')})\\b`),
        hookTimeout: 120_000,
      }),
      // A bug may make something hang; what is not done by then is red, which is the purpose.
      testTimeout: on === undefined ? 5_000 : 20_000,
      // Sources with a bug in them must not be kept for later runs, in which the bug may be another.
      fsModuleCache: false,
      execArgv: ['--disable-warning=ExperimentalWarning', '--expose-gc'],
    },
  }
}

export default defineConfig({
  root,
  test: {
    pool: 'forks',
    maxWorkers: 2,
    reporters: [reporter],
    projects: [
      project('none', { files: inMemory.map(({ file }) => file) }, []),
      ...inMemory.map((bug) => project(bug.id, { files: [bug.file] }, [planting(bug)])),
      ...[...onServers].flatMap(([on, those]) => [
        project(
          `none ${on}`,
          { on, files: those.map(({ file }) => file), names: those.map(({ name }) => name) },
          [],
        ),
        ...those.map((bug) => project(bug.id, { on, files: [bug.file], names: [bug.name] }, [planting(bug)])),
      ]),
    ],
  },
})
