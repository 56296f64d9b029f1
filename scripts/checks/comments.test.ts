import { expect, test } from 'vitest'
import { folderWith } from '../lib/test-folder.ts'
import { checkComments, commentsIn } from './comments.ts'

const lines = ({ whats, bare }: ReturnType<typeof commentsIn>) => [
  whats.map(({ line }) => line),
  bare.map(({ line }) => line),
]

test.for([
  '// What is left.',
  '  /** What is left. */',
  '  -- What is left, in SQL or Lua.',
  '/**\n * What is left.\n */',
])('a comment that begins with "What": %s', (text) => {
  expect(commentsIn('a.ts', text).whats).toHaveLength(1)
})

test.for([
  '// The rest. What is left is small.',
  '// The rest:\n// What is left is small.',
  '/** The rest.\n * What is left is small. */',
  "const text = 'What is left'",
])('none: %s', (text) => {
  expect(lines(commentsIn('a.ts', text))).toEqual([[], []])
})

test('a trap or a case in brackets has a word beside it, but in tests, whose names say more', () => {
  const text = '// Late (T84).\n * Late (T84, late duplicates) and (G6).\n-- Drawn (C54, T67)\ncall(T84)'
  expect(lines(commentsIn('a.ts', text))).toEqual([[], [1, 3]])
  expect(lines(commentsIn('a.test.ts', text))).toEqual([[], []])
})

test('up to the ceiling nothing is said, above it all of them are named', () => {
  const folder = folderWith({ 'a.ts': '// What is left.\n', 'b/c.ts': '// What is right.\n' })
  expect(checkComments(folder, 2)).toEqual([])
  expect(checkComments(folder, 1).map(({ message }) => message)).toEqual([
    'begins with "What"',
    'begins with "What"',
    '2 comments begin with "What", 1 may',
  ])
})
