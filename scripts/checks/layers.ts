// Imports in the library point downwards only, and those of every package stay inside its sources.
//
// Each layer of the library may import itself, `node:` modules, and what the table names. Another package has no layers: it
// imports what its manifest names, and of the library the public entry points alone. Tests are left out: they stand beside
// the source and reach for the test helpers.

import { readFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { backendsOf } from '../lib/backends.ts'
import { type Complaint, finish } from '../lib/report.ts'
import { filesUnder, libraryPath, pathFrom, root, sourcePackages } from '../lib/repository.ts'
import { descendants, importsOf, lineOf, parse, ts } from '../lib/syntax.ts'

const everything = [
  'base',
  'kit',
  'locker',
  'spi.ts',
  'engines',
  'guards',
  'lockfree',
  'open.ts',
  'recipes',
  'telemetry',
  'web-locks.ts',
]

const layers: Record<string, { may: readonly string[]; typesOnly?: boolean }> = {
  // All layers import these.
  base: { may: ['spi.ts'] },
  'spi.ts': { may: ['base'], typesOnly: true },
  // The client side of a lease.
  locker: { may: ['base', 'spi.ts'] },
  // Engines share these.
  kit: { may: ['base', 'spi.ts'] },
  'for-engine-authors.ts': { may: ['base', 'kit', 'spi.ts', 'open.ts'] },
  // The rule of guards and the protocols without a lock. They know no engine.
  guards: { may: ['base'] },
  lockfree: { may: ['base'] },
  engines: { may: ['base', 'kit', 'spi.ts', 'guards', 'lockfree'] },
  // They use the public Locker and never know an engine.
  recipes: { may: ['base'] },
  'web-locks.ts': { may: ['base'] },
  // Over the events, and around the public Locker.
  telemetry: { may: ['base'] },
  'open.ts': { may: ['base', 'kit', 'locker', 'spi.ts', 'engines'] },
  'index.ts': { may: everything },
  testing: { may: [...everything, 'index.ts'] },
}

/** The parts of an engine that its other parts import. Each of the others stands alone. */
const sharedParts = ['client', 'tables']

/** Optional peers, and the engine or recipe that may have each loaded (ADR 0009). */
const peers: Record<string, string> = {
  croner: 'recipes/schedule',
  ioredis: 'redis',
  redis: 'redis',
  pg: 'postgres',
  postgres: 'postgres',
}

/** The only file that may import what it does not name. */
const loader = 'base/load-peer.ts'

/** Engines, for the rule that `base/` and `kit/` name none. `memory` is an English word, and `postgres` is in `postgresql`. */
const names = backendsOf(root).map(({ name }) => name)
const engineNames = new RegExp(names.filter((name) => name !== 'memory').join('|'), 'i')
const withoutEngines = new Set(['base', 'kit'])

// These are pure: whatever reaches the outside world is handed to them.
const pure = new Set(['base', 'locker', 'kit'])
const outsideWorld = new Set(
  ['child_process', 'cluster', 'dgram', 'fs', 'fs/promises', 'http', 'http2', 'https', 'net', 'sqlite', 'tls']
    .concat('worker_threads')
    .map((name) => `node:${name}`),
)

/** The complaints about a package, which may be in another folder than this repository's. */
export function checkPackage(path: string, repository = root): Complaint[] {
  const folder = join(repository, path)
  if (path === libraryPath) return checkLayers(join(folder, 'src'))
  const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const named = Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies })
  return checkImports(join(folder, 'src'), (file, from) => {
    if (from.startsWith('node:')) return null
    if (from.startsWith('.')) return leavesSources(file, from)
    const [scope, name] = from.split('/')
    const isNamed = named.includes(from.startsWith('@') ? `${scope}/${name}` : `${scope}`)
    return isNamed ? null : `the manifest of ${path} does not name ${from}`
  })
}

export function checkLayers(src: string): Complaint[] {
  const complaints = checkImports(src, judge)
  for (const path of filesUnder(src, isSource)) {
    const file = pathFrom(src, path)
    const parsed = parse(path, readFileSync(path, 'utf8'))
    for (const { line, message } of [...misloadedPeers(file, parsed), ...namedEngines(file, parsed)])
      complaints.push({ file: pathFrom(root, path), line, message })
    if (!layers[layerOf(file)] || /^engines\/[^/]+$/.test(file)) {
      complaints.push({ file: pathFrom(root, path), line: 1, message: 'belongs to no layer' })
    }
  }
  return complaints
}

type Judge = (file: string, from: string, typeOnly: boolean) => string | null

function checkImports(src: string, judgeImport: Judge): Complaint[] {
  return filesUnder(src, isSource).flatMap((path) => {
    const file = pathFrom(src, path)
    return importsOf(parse(path, readFileSync(path, 'utf8'))).flatMap(({ from, typeOnly, dynamic, line }) => {
      if (file === loader && dynamic && from === null && judgeImport === judge) return []
      const message =
        from === null ? 'a dynamic import must name its file' : judgeImport(file, from, typeOnly)
      return message ? [{ file: pathFrom(root, path), line, message }] : []
    })
  })
}

type Finding = Required<Pick<Complaint, 'line' | 'message'>>

/** Calls of `loadPeer`: each names a package of the table, in the folder of its engine or recipe. */
function misloadedPeers(file: string, parsed: ts.SourceFile): Finding[] {
  const calls = [...descendants(parsed)].filter(
    (node) => ts.isCallExpression(node) && node.expression.getText(parsed) === 'loadPeer',
  ) as ts.CallExpression[]
  return calls.flatMap((call) => {
    const [name] = call.arguments
    const line = lineOf(call)
    if (name === undefined || !ts.isStringLiteral(name))
      return { line, message: 'loadPeer must be given the name itself' }
    const owner = peers[name.text]
    if (owner === undefined) return { line, message: `${name.text} is not in the table of peers` }
    const isOwn = file.startsWith(owner.includes('/') ? `${owner}/` : `engines/${owner}/`)
    return isOwn ? [] : { line, message: `${name.text} is loaded by ${owner} only` }
  })
}

/** Names and texts in `base/` and `kit/` that are about one engine. A comment may give one as an example. */
function namedEngines(file: string, parsed: ts.SourceFile): Finding[] {
  if (!withoutEngines.has(layerOf(file))) return []
  return [...descendants(parsed)]
    .filter((node) => ts.isIdentifier(node) || ts.isStringLiteral(node) || ts.isTemplateLiteralToken(node))
    .filter((node) => engineNames.test(node.getText(parsed)))
    .map((node) => ({
      line: lineOf(node),
      message: `${layerOf(file)} names an engine: ${node.getText(parsed)}`,
    }))
}

export function isSource(path: string): boolean {
  return path.endsWith('.ts') && !/\.test(-d)?\.ts$/.test(path)
}

function judge(file: string, from: string, typeOnly: boolean): string | null {
  const layer = layerOf(file)
  if (from.startsWith('node:')) {
    return pure.has(layer) && outsideWorld.has(from) ? `${layer} may not import ${from}` : null
  }
  if (!from.startsWith('.'))
    return `the library has no dependencies, so it may not import ${from} (loadPeer loads optional peers)`

  const outside = leavesSources(file, from)
  if (outside !== null) return outside
  const target = posix.join(dirname(file), from)
  if (roomOf(target) === roomOf(file) || isSharedPart(target, file)) return null
  const rule = layers[layer]
  if (!rule?.may.includes(layerOf(target))) return `${layer} may not import ${target}`
  if (rule.typesOnly && !typeOnly) return `${layer} may import only types from ${target}`
  return null
}

function leavesSources(file: string, from: string): string | null {
  return posix.join(dirname(file), from).startsWith('../')
    ? `${from} lies outside the package's sources`
    : null
}

/** The first part of the path: a folder, or a file that stands alone. */
function layerOf(file: string): string {
  return file.split('/')[0] ?? file
}

/** Files of one room import each other. An engine's room is its part, such as `engines/redis/locks`. */
function roomOf(file: string): string {
  const [layer = file, engine, part, inside] = file.split('/')
  if (layer !== 'engines') return layer
  return inside === undefined ? `${layer}/${engine}` : `${layer}/${engine}/${part}`
}

/** A part of an engine may import the shared parts of the same engine; the tables, only the client. */
function isSharedPart(target: string, file: string): boolean {
  const [layer, engine, part] = roomOf(target).split('/')
  const own = roomOf(file).split('/')
  const rank = (name = '') => (sharedParts.includes(name) ? sharedParts.indexOf(name) : sharedParts.length)
  return layer === 'engines' && own[0] === layer && own[1] === engine && rank(part) < rank(own[2])
}

if (import.meta.main) {
  const count = sourcePackages.flatMap((path) => filesUnder(join(root, path, 'src'), isSource)).length
  const complaints = sourcePackages.flatMap((path) => checkPackage(path))
  finish('layers', complaints, `the imports of ${count} files point downwards`)
}
