import { join } from 'node:path'
import { expect, test } from 'vitest'
import { cache } from '../lib/repository.ts'
import { folderWith } from '../lib/test-folder.ts'
import { blocksOf, checkBlocks } from './docs-blocks.ts'

const fenced = (info: string, ...lines: string[]) => [`\`\`\`${info}`, ...lines, '```'].join('\n')

function check(...parts: string[]) {
  const folder = folderWith({ 'guide.md': parts.join('\n') }, cache)
  return checkBlocks(folder, [join(folder, 'guide.md')], join(folder, 'work'))
}

test('blocks are found with their lines, also indented ones', () => {
  const markdown = [
    'text',
    fenced('ts', 'a', 'b'),
    fenced('js', 'c'),
    '  ```ts continued',
    '  d',
    '  ```',
  ].join('\n')
  expect(blocksOf(markdown)).toEqual([
    { text: 'a\nb', line: 3, continued: false },
    { text: 'd', line: 10, continued: true },
  ])
})

test('blocks that compile pass, each on its own', () => {
  const text = 'const answer: number = 42'
  const { count, complaints } = check(fenced('ts', text), fenced('ts', text), fenced('sh', 'no code'))
  expect({ count, complaints }).toEqual({ count: 2, complaints: [] })
})

test('an error is reported at its line of the document', () => {
  const { complaints } = check('# Guide', '', fenced('ts', '', `const answer: number = 'x'`))
  expect(complaints).toMatchObject([
    { file: 'guide.md', line: 5, message: expect.stringContaining('TS2322') },
  ])
})

test('a continued block sees the one before, and its errors keep their lines', () => {
  const first = fenced('ts', 'const answer = 42')
  expect(check(first, fenced('ts continued', 'answer.toFixed()')).complaints).toEqual([])
  const { complaints } = check(first, 'text', fenced('ts continued', 'answer.missing()'))
  expect(complaints).toMatchObject([{ line: 6, message: expect.stringContaining('TS2339') }])
  expect(check(first, fenced('ts', 'answer.toFixed()')).complaints).toHaveLength(1)
})

test('a block may be left out with a reason, and only with one', () => {
  expect(check(fenced('ts', '// not compiled: shows an error', 'oops(')).complaints).toEqual([])
  expect(check(fenced('ts', '// not compiled:', 'oops(')).complaints).not.toEqual([])
})
