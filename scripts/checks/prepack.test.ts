import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { folderWith } from '../lib/test-folder.ts'
import { prepare } from '../prepack.ts'

const known = ['packages/holdfast', 'packages/server']
const repository = () =>
  folderWith({
    LICENSE: 'the licence',
    'README.md': '# All\n\n[Redis](docs/redis.md)\n\n## This repository\n\nFor builders.\n',
    'docs/redis.md': 'See [why](adr/0001.md).\n\n## For builders\n\nMore.\n',
    'docs/adr/0001.md': '',
    'packages/holdfast/package.json': '{ "name": "holdfast", "version": "1.2.3" }',
    'packages/holdfast/dist/index.js': '',
    'packages/server/dist/main.js': '',
    'packages/server/README.md': '# The server',
    'packages/unbuilt/package.json': '{}',
  })
const reader = (folder: string) => (path: string) => readFileSync(join(folder, path), 'utf8')

test('the library gets the licence, the README for the registry, and the documents for users', () => {
  const folder = repository()
  prepare('packages/holdfast', folder, known)
  const read = reader(join(folder, 'packages/holdfast'))
  expect(read('LICENSE')).toBe('the licence')
  expect(read('README.md')).toContain('[Redis](https://unpkg.com/holdfast@1.2.3/docs/redis.md)')
  expect(read('README.md')).not.toContain('This repository')
  expect(read('docs/redis.md')).toBe('See why.\n')
  expect(existsSync(join(folder, 'packages/holdfast/docs/adr'))).toBe(false)
})

test('another package gets the licence, and keeps its README', () => {
  const folder = repository()
  prepare('packages/server', folder, known)
  const read = reader(join(folder, 'packages/server'))
  expect([read('LICENSE'), read('README.md')]).toEqual(['the licence', '# The server'])
  expect(existsSync(join(folder, 'packages/server/docs'))).toBe(false)
  expect(existsSync(join(folder, 'packages/holdfast/LICENSE'))).toBe(false)
})

test('a package without a build, or that is not published, is refused', () => {
  expect(() => prepare('packages/unbuilt', repository(), [...known, 'packages/unbuilt'])).toThrow('no build')
  expect(() => prepare('packages/unbuilt', repository(), known)).toThrow('none of the packages')
})
