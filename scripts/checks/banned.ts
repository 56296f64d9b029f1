// Core, the engines, the recipes and all other packages take time and randomness from where tests can replace them, and never
// print.
//
// The check reads the syntax tree, so words in comments and strings do not count, and neither does a method
// of an injected object that happens to be called `setTimeout`.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Complaint, finish } from '../lib/report.ts'
import { filesUnder, libraryPath, pathFrom, root, sourcePackages } from '../lib/repository.ts'
import { descendants, lineOf, parse, ts } from '../lib/syntax.ts'
import { isSource } from './layers.ts'

interface Rule {
  readonly names: readonly string[]
  /** Files of the library. */
  readonly allowedIn: readonly string[]
  readonly why: string
}

const rules: readonly Rule[] = [
  {
    names: ['Date', 'performance.now', 'performance.timeOrigin', 'process.hrtime', 'process.uptime'],
    allowedIn: ['base/clock.ts'],
    why: 'time is read through the injected Clock, so that tests can step, stop and suspend it',
  },
  {
    names: ['setTimeout', 'setInterval', 'setImmediate', 'AbortSignal.timeout'],
    allowedIn: ['base/clock.ts'],
    why: 'timers belong to the injected Clock, so that none keeps a process alive and tests need not wait',
  },
  {
    names: ['randomBytes', 'randomInt', 'randomUUID', 'randomFill', 'randomFillSync', 'getRandomValues'],
    allowedIn: ['base/ids.ts'],
    why: 'ids come from one pooled source, which tests can seed',
  },
  {
    names: ['Math.random'],
    allowedIn: [],
    why: 'it is guessable, and jitter comes from the injected source of randomness',
  },
  {
    names: ['console'],
    allowedIn: [],
    why: 'the library speaks through events and errors, never to the terminal',
  },
]

const timerModules = new Set(['node:timers', 'node:timers/promises'])

/** A package whose manifest is in this folder. Of the library these parts, of another package all that it has. */
export function checkBanned(folder: string, isLibrary: boolean): Complaint[] {
  const src = join(folder, 'src')
  const parts = isLibrary ? ['base', 'locker', 'kit', 'engines', 'recipes'] : ['.']
  const paths = parts.flatMap((part) => filesUnder(join(src, part), isSource))
  return paths.flatMap((path) => {
    const found = bannedIn(pathFrom(src, path), readFileSync(path, 'utf8'), isLibrary)
    return found.map((complaint) => ({ ...complaint, file: pathFrom(root, path) }))
  })
}

export function bannedIn(file: string, text: string, isLibrary = true): Complaint[] {
  const complaints: Complaint[] = []
  for (const node of descendants(parse(file, text))) {
    const name = nameUsed(node)
    const rule = rules.find(({ names }) => name !== null && names.includes(name))
    const allowedIn = isLibrary ? rule?.allowedIn : []
    if (!rule || allowedIn?.includes(file)) continue
    const where = allowedIn?.length ? `only ${allowedIn.join(', ')} may` : 'nobody here may'
    complaints.push({ file, line: lineOf(node), message: `${name}: ${where} use it; ${rule.why}` })
  }
  return complaints
}

/** The global or the well-known function that a node uses, in the spelling of the table above. */
function nameUsed(node: ts.Node): string | null {
  if (ts.isImportDeclaration(node) && ts.isStringLiteral(node.moduleSpecifier)) {
    return timerModules.has(node.moduleSpecifier.text) ? 'setTimeout' : null
  }
  if (ts.isImportSpecifier(node)) return (node.propertyName ?? node.name).text
  if (ts.isPropertyAccessExpression(node)) {
    const object = withoutGlobalThis(node.expression)
    const member = node.name.text
    // The names of node:crypto's functions are telling enough whatever the module was called on import.
    if (member.startsWith('random') || member === 'getRandomValues') {
      return object === 'Math' ? 'Math.random' : member
    }
    return object === 'globalThis' ? member : `${object}.${member}`
  }
  if (ts.isIdentifier(node) && isReference(node)) return node.text
  return null
}

function withoutGlobalThis(expression: ts.Expression): string {
  return expression.getText().replace(/^globalThis\./, '')
}

/** An identifier that reads a variable, as opposed to naming a member, a declaration, an import or a type. */
function isReference(node: ts.Identifier): boolean {
  const parent: ts.Node & { name?: ts.Node; propertyName?: ts.Node } = node.parent
  if (ts.isShorthandPropertyAssignment(parent)) return true
  return parent.name !== node && parent.propertyName !== node && !ts.isTypeNode(parent)
}

if (import.meta.main) {
  finish(
    'banned',
    sourcePackages.flatMap((path) => checkBanned(join(root, path), path === libraryPath)),
    'no time, randomness or output outside their files in core, engines, recipes and other packages',
  )
}
