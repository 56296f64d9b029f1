// Comments name their subject first, and a trap in brackets comes with a word that says what it is: `(T84, late duplicates)`.
//
// The lines are read as text, because Lua and SQL have comments inside of strings.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Complaint, finish } from '../lib/report.ts'
import { filesUnder, pathFrom, root } from '../lib/repository.ts'

/** Comments that begin with "What". A new one hides its subject behind a clause; rewrite it, or an old one. */
export const MOST_WHATS = 30

const COMMENT = /^\s*(\/\*\*?|\/\/|--|\*) /
const WHAT = /^\s*(\/\*\*?|\/\/|--|\*) What\b/
const BARE_TRAP = /\((?:[TC]\d+(?:, )?)+\)/

/** A comment of several lines counts by its first. */
export function commentsIn(
  file: string,
  text: string,
): { readonly whats: readonly Complaint[]; readonly bare: readonly Complaint[] } {
  const lines = text.split('\n')
  const found = (isFound: (line: string, before: string) => boolean, message: string) =>
    lines.flatMap((line, index) =>
      isFound(line, lines[index - 1] ?? '') ? [{ file, line: index + 1, message }] : [],
    )
  return {
    whats: found((line, before) => WHAT.test(line) && !COMMENT.test(before), 'begins with "What"'),
    bare: found(
      (line) => !file.endsWith('.test.ts') && COMMENT.test(line) && BARE_TRAP.test(line),
      'has the number of a trap or a case in brackets and no word that says what it is',
    ),
  }
}

export function checkComments(folder: string, most: number): Complaint[] {
  const files = filesUnder(folder, (path) => path.endsWith('.ts') && !path.includes('/dist/'))
  const found = files.map((path) => commentsIn(pathFrom(root, path), readFileSync(path, 'utf8')))
  const whats = found.flatMap((each) => each.whats)
  const bare = found.flatMap((each) => each.bare)
  if (whats.length <= most) return bare
  const message = `${whats.length} comments begin with "What", ${most} may`
  return [...bare, ...whats, { file: pathFrom(root, folder), message }]
}

if (import.meta.main) {
  const success = `no more than ${MOST_WHATS} comments begin with "What", and traps in brackets come with a word`
  finish('comments', checkComments(join(root, 'packages'), MOST_WHATS), success)
}
