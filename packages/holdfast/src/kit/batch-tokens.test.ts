import { expect, test } from 'vitest'
import { BatchTokens } from './batch-tokens.ts'

const tokens = new BatchTokens(16)

test('G2 tokens of one version differ, and those of a later version are greater', () => {
  const all = [tokens.token(7, 0), tokens.token(7, 15), tokens.token(8n, 0)]
  expect(all).toEqual([112n, 127n, 128n])
})

test('a grant is parsed into the version and the position', () => {
  expect(tokens.parse('127')).toEqual({ version: 7, position: 15 })
})

test.each(['', '-1', '1.5', 'x', '15', '9'.repeat(20)])('%j is no grant of such an engine', (text) => {
  expect(tokens.parse(text)).toBeNull()
})
