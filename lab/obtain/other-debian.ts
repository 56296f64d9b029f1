// Packages of another Debian release, unpacked into a folder of ours and never installed.
//
// The mirror is the one that the machine itself uses, asked of its own apt; everything that apt writes goes to
// private state, so neither the machine's package lists nor its sources change. No rights are needed.

import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, globSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { apt } from './apt.ts'
import {
  downloadAndUnpack,
  inWorkFolder,
  libraryFolders,
  privateState,
  replace,
  unpack,
  writeProgram,
} from './unpacking.ts'

const archiveKeys = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** Puts `program` of the package beside the other unpacked programs, as `target`. */
export function unpackFromOlderDebian(
  { package: name, release, program }: { package: string; release: string; program: string },
  target: string,
): void {
  inWorkFolder((work) => {
    apt([...optionsFor(release, work), 'download', name], { cwd: work })

    const [archive] = globSync(join(work, '*.deb'))
    if (archive === undefined) throw new Error(`${release} has no ${name}`)
    unpack(archive, join(work, 'files'))
    mkdirSync(dirname(target), { recursive: true })
    // Renamed into place, so that a run that is killed here does not leave half a program for the next to find.
    cpSync(join(work, 'files', program), `${target}.part`)
    renameSync(`${target}.part`, target)
  })
}

/**
 * Unpacks the packages and all that they need, whatever the machine has, as the folder `target`. Each program becomes a script
 * that starts it with these libraries; it may be started under another name.
 */
export function unpackFromRelease(
  release: string,
  packages: readonly string[],
  programs: readonly { readonly path: string; readonly name: string }[],
  target: string,
): void {
  const part = `${target}.part`
  inWorkFolder((work) => {
    downloadAndUnpack(work, optionsFor(release, work), packages, part, isOlderLibc)
  })
  for (const { path, name } of programs) writeStarter(part, path, name)
  replace(part, target)
}

/** Options for apt, which then knows this release alone and takes nothing for installed. */
function optionsFor(release: string, work: string): string[] {
  writeFileSync(join(work, 'status'), '')
  const options = privateState(work, join(work, 'status'))
  const sources = join(work, 'sources.list')
  const keys = existsSync(archiveKeys) ? `[signed-by=${archiveKeys}] ` : ''
  writeFileSync(sources, `deb ${keys}${mirror(options)} ${release} main\n`)
  const ofRelease = [...options, '-o', `Dir::Etc::sourcelist=${sources}`, '-o', 'Dir::Etc::sourceparts=-']
  apt([...ofRelease, 'update'])
  return ofRelease
}

/** Where the machine's own packages come from: what apt would fetch for its release, without fetching it. */
function mirror(options: readonly string[]): string {
  const codename = /^VERSION_CODENAME=(.+)$/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1]
  const uris = apt([...options, '--print-uris', 'update'])
  const found = new RegExp(`^'(.+/)dists/${codename}/InRelease'`, 'm').exec(uris)?.[1]
  if (codename === undefined || found === undefined) throw new Error('apt names no mirror of Debian here')
  return found
}

const loaders = ['usr/lib/*-linux-gnu/ld-linux-*.so.*', 'lib/*-linux-gnu/ld-linux-*.so.*']

/**
 * The C library is compatible upwards. Programs of an older release run with the machine's own, for which the clock of a test
 * (lab/faults) is compiled.
 */
function isOlderLibc(archive: string): boolean {
  const theirs = /^libc6_([\d.]+)/.exec(archive)?.[1]
  const ours = execFileSync('getconf', ['GNU_LIBC_VERSION'], { encoding: 'utf8' }).split(/\s/)[1] ?? ''
  return theirs !== undefined && theirs.localeCompare(ours, 'en', { numeric: true }) <= 0
}

/** A script in the place of the program, because PostgreSQL looks for its other programs and files beside itself. */
function writeStarter(root: string, path: string, name: string): void {
  const folder = dirname(path)
  const program = `${basename(path)}.elf`
  renameSync(join(root, path), join(root, folder, program))
  const [own] = globSync(loaders, { cwd: root })
  const loader = own === undefined ? join('/', globSync(loaders, { cwd: '/' })[0] ?? '') : `$root/${own}`
  const libraries = libraryFolders(root).map((each) => `$root/${each}`)
  writeProgram(
    join(root, folder, name),
    'here="$(dirname "$(readlink -f "$0")")"',
    `root="$here/${relative(folder, '.')}"`,
    `exec "${loader}" --library-path "${libraries.join(':')}" "$here/${program}" "$@"`,
  )
}
