// Programs of users, bundled with what is installed in their projects only.

import { join } from 'node:path'
import * as esbuild from 'esbuild'
import { reach, wanted } from 'holdfast-lab/servers'
import { rolldown } from 'rolldown'
import { describe, expect, test } from 'vitest'
import webpack from 'webpack'
import { type PackedProject, packedProject, runProgram } from '../lib/packed-project.ts'

interface Bundled {
  readonly file: string
  readonly warnings: readonly string[]
}

type Bundle = (project: PackedProject, entry: string) => Promise<Bundled>

const bundlers: Record<string, Bundle> = {
  async esbuild({ folder }, entry) {
    const file = join(folder, 'out/esbuild.cjs')
    const { warnings } = await esbuild.build({
      entryPoints: [entry],
      outfile: file,
      bundle: true,
      platform: 'node',
      minify: true,
      logLevel: 'silent',
    })
    return { file, warnings: warnings.map(({ text }) => text) }
  },
  async rolldown({ folder }, entry) {
    const warnings: string[] = []
    const bundle = await rolldown({
      input: entry,
      cwd: folder,
      platform: 'node',
      onLog: (level, { message }) => void (level === 'warn' && warnings.push(message)),
    })
    const dir = join(folder, 'out/rolldown')
    await bundle.write({ dir, format: 'esm', entryFileNames: 'main.mjs' })
    return { file: join(dir, 'main.mjs'), warnings }
  },
  async webpack({ folder }, entry) {
    const path = join(folder, 'out/webpack')
    const { promise, resolve, reject } = Promise.withResolvers<webpack.StatsCompilation>()
    webpack(
      {
        entry,
        context: folder,
        target: 'node22.13',
        mode: 'production',
        optimization: { minimize: false },
        output: { path, filename: 'main.cjs' },
      },
      (error, stats) =>
        stats ? resolve(stats.toJson({ all: false, errors: true, warnings: true })) : reject(error),
    )
    const { errors = [], warnings = [] } = await promise
    if (errors.length > 0) throw new Error(errors.map(({ message }) => message).join('\n'))
    return { file: join(path, 'main.cjs'), warnings: warnings.map(({ message }) => message) }
  },
}

async function bundleAndRun(bundler: string, program: string, packages: readonly string[] = []) {
  const project = packedProject({ packages })
  const bundled = await bundlers[bundler]?.(project, project.write('program.js', program))
  if (bundled === undefined) throw new Error(`no bundler ${bundler}`)
  expect(bundled.warnings).toEqual([])
  const { status, stdout, stderr } = await runProgram(process.execPath, [bundled.file], {
    cwd: project.folder,
  })
  expect(stderr).toBe('')
  expect(status).toBe(0)
  return stdout
}

describe.each(Object.keys(bundlers))('%s', (bundler) => {
  test('a program with createLocker needs no optional peer', async () => {
    const program = `
      import { createLocker } from 'holdfast'
      import { memory } from 'holdfast/memory'
      const locker = createLocker(memory())
      locker.withLease('sku:42', (lease) => console.log('token', lease.fence.token)).then(() => locker.close())
    `
    expect(await bundleAndRun(bundler, program)).toBe('token 1n\n')
  })

  test('openLocker says at run time which package is missing', async () => {
    const program = `
      import { openLocker } from 'holdfast'
      for (const url of ['redis://127.0.0.1:1', 'redlock://a,b,c', 'postgres://127.0.0.1:1/x'])
        openLocker(url).catch((error) => console.log(error.name, error.message))
    `
    const printed = await bundleAndRun(bundler, program)
    expect(
      printed
        .split('\n')
        .filter((line) => /^UnsupportedError .* Install one of them: npm install/.test(line)),
    ).toHaveLength(3)
    expect(printed).toMatch(/npm install ioredis, or npm install redis\. Bundles do not contain it/)
    expect(printed).toMatch(/npm install pg, or npm install postgres\. Bundles do not contain it/)
  })

  test.runIf(wanted('redis'))('a program with ioredis needs no other peer', async () => {
    await using server = await reach('redis')
    const program = `
      import { createLocker, openLocker } from 'holdfast'
      import { redis } from 'holdfast/redis'
      import { Redis } from 'ioredis'
      async function run() {
        const client = new Redis('${server.url}')
        const lockers = [createLocker(redis({ client })), await openLocker('${server.url}')]
        for (const locker of lockers) {
          await locker.withLease('bundled by ${bundler}', (lease) => console.log(lease.state))
          await locker.close()
        }
        client.disconnect()
      }
      run()
    `
    expect(await bundleAndRun(bundler, program, ['ioredis'])).toBe('held\nheld\n')
  })
})
