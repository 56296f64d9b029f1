import { expect, test } from 'vitest'
import { bytesOfParts } from '../lib/packed-parts.ts'

const backends = [
  { name: 'acme', folder: 'engines/acme/locks' },
  { name: 'acme-fast', folder: 'engines/acme/fast' },
  { name: 'zeta', folder: 'engines/zeta' },
]

/** The parts that get larger when this file does. */
function partsOf(file: string): string[] {
  const files: Record<string, string> = {
    'README.md': '',
    'docs/backends/acme-fast.md': '',
    'docs/recipes/election.md': '',
    'docs/web-locks.md': '',
    'docs/reference/errors.md': '',
    'dist/index.js': `import{o}from"./shared/open.js"`,
    'dist/shared/open.js': `import"./base.js";const zeta=()=>import("./from-url.js")`,
    'dist/shared/base.js': '',
    'dist/shared/from-url.js': `import"./base.js";import{z}from"./zeta.js"`,
    'dist/shared/zeta.js': `import"./base.js"`,
    'dist/engines/zeta/index.js': `import{z}from"../../shared/zeta.js"`,
    'dist/engines/acme/locks/index.js': `import"../../../shared/client.js"`,
    'dist/engines/acme/fast/index.js': `import"../../../shared/client.js";import"../../../shared/fast.js"`,
    'dist/engines/acme/guard/guard.js': `import"../../../shared/guard.js"`,
    'dist/shared/client.js': '',
    'dist/shared/fast.js': '',
    'dist/guards/memory.js': `import"../shared/guard.js"`,
    'dist/shared/guard.js': '',
    'dist/cli/main.js': `import"./program.js"`,
    'dist/cli/program.js': '',
    'dist/recipes/election.js': `import"../shared/needs.js"`,
    'dist/web-locks.js': `import"./shared/base.js"`,
    'dist/web-locks.d.ts': '',
    'dist/recipes/election/term.d.ts': '',
    'dist/recipes/schedule.js': `import"../shared/needs.js"`,
    'dist/shared/needs.js': '',
    'dist/testing/index.js': `import"../shared/zeta.js";import"../shared/base.js";import"../shared/suite.js"`,
    'dist/shared/suite.js': '',
  }
  const names = Object.keys(files)
  expect(names).toContain(file)
  const before = bytesOfParts(names, (name) => files[name] ?? '', backends)
  const larger = (name: string) =>
    `${files[name]}${name === file ? '/* other words, and more of them */' : ''}`
  const after = bytesOfParts(names, larger, backends)
  return [...after].flatMap(([part, size]) => (size > (before.get(part) ?? 0) ? [part] : []))
}

test.for([
  ['README.md', 'documents'],
  ['docs/reference/errors.md', 'documents'],
  ['docs/backends/acme-fast.md', 'acme-fast'],
  ['docs/recipes/election.md', 'recipes/election'],
  ['dist/shared/base.js', 'core and kit'],
  ['dist/shared/zeta.js', 'zeta'],
  ['dist/shared/from-url.js', 'zeta'],
  ['dist/engines/acme/guard/guard.js', 'acme'],
  ['dist/shared/client.js', 'acme'],
  ['dist/shared/fast.js', 'acme-fast'],
  ['dist/guards/memory.js', 'guards and lockfree'],
  ['dist/shared/guard.js', 'core and kit'],
  ['dist/cli/program.js', 'command line'],
  ['dist/recipes/election/term.d.ts', 'recipes/election'],
  ['docs/web-locks.md', 'web-locks'],
  ['dist/web-locks.js', 'web-locks'],
  ['dist/web-locks.d.ts', 'web-locks'],
  ['dist/shared/needs.js', 'core and kit'],
  ['dist/shared/suite.js', 'testing'],
] as const)('%s counts for %s', ([file, part]) => {
  expect(partsOf(file)).toEqual([part])
})
