// Runs before `npm pack` and `npm publish` in the folder of a package: puts the licence into it, and into the library the
// README and the documents for users as well. Another package has a README of its own. Does not build, so that packing never
// changes what was tested.

import { copyFileSync, cpSync, existsSync, globSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { libraryPath, packages, pathFrom, root } from './lib/repository.ts'

if (import.meta.main) prepare(pathFrom(root, process.cwd()))

/** `path` is one of `packages`, from the root of the repository. */
export function prepare(path: string, repository = root, known = packages): void {
  const folder = join(repository, path)
  if (!known.includes(path)) throw new Error(`${path} is none of the packages that are published`)
  if (!existsSync(join(folder, 'dist'))) throw new Error('there is no build; run `npm run build` first')
  copyFileSync(join(repository, 'LICENSE'), join(folder, 'LICENSE'))
  if (path === libraryPath) addDocuments(folder, repository)
}

function addDocuments(library: string, repository: string): void {
  rmSync(join(library, 'docs'), { recursive: true, force: true })
  cpSync(join(repository, 'docs'), join(library, 'docs'), {
    recursive: true,
    filter: (path) => !/^docs\/(adr|traps)\b|\.ts$/.test(pathFrom(repository, path)),
  })
  const readme = readFileSync(join(repository, 'README.md'), 'utf8')
  writeFileSync(join(library, 'README.md'), forRegistry(readme, library))
  for (const path of globSync(join(library, 'docs/**/*.md'))) forPackage(path)
}

/** Leaves out what is about the repository. */
function forPackage(path: string): void {
  const [text = ''] = readFileSync(path, 'utf8').split('\n## For builders\n')
  writeFileSync(path, withoutForeignLinks(text, dirname(path)))
}

/** A link to a file that only the repository has becomes plain text. */
function withoutForeignLinks(text: string, folder: string): string {
  return text.replaceAll(/\[([^\]]*)\]\((?!#|https?:)([^)#]+)(#[^)]*)?\)/g, (link, words, target) =>
    existsSync(join(folder, target)) ? link : words,
  )
}

/**
 * The registry shows the README without the files around it. So links lead to the package's own documents, in this
 * version, where the registry's files can be read; what is about the repository is left out.
 */
function forRegistry(readme: string, library: string): string {
  const { name, version } = JSON.parse(readFileSync(join(library, 'package.json'), 'utf8'))
  const [text = ''] = readme.split('\n## This repository\n')
  const note =
    'The documents are also in `node_modules/holdfast/docs`. Commands that start with `npm run` are for the repository.'
  return withoutForeignLinks(text, library)
    .replace('\n\n', `\n\n${note}\n\n`)
    .replaceAll(/\]\((?!#|https?:)([^)]+)\)/g, `](https://unpkg.com/${name}@${version}/$1)`)
}
