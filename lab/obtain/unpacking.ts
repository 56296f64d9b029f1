// Debian's packages, unpacked into a folder of ours and never installed. Everything that apt writes goes to private state,
// so neither the machine's package lists nor its sources change. No rights are needed.

import { spawnSync } from 'node:child_process'
import { chmodSync, globSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { apt } from './apt.ts'

/**
 * Unpacks the packages, and of what they need all that the machine lacks, as `<into>/<name>`. The programs are started by
 * scripts in `<into>/bin`, because they find their libraries only when told where.
 */
export function unpackWithDependencies(
  packages: readonly string[],
  into: string,
  name: string,
  programs: readonly string[],
): void {
  inWorkFolder((work) => {
    const options = privateState(work, '/var/lib/dpkg/status')
    apt([...options, 'update'])
    const part = join(into, `${name}.part`)
    downloadAndUnpack(work, options, packages, part)
    replace(part, join(into, name))
  })
  const folders = libraryFolders(join(into, name))
  for (const program of programs) {
    // Last of all, so that what is found is whole.
    writeProgram(
      join(into, 'bin', program),
      `files="$(dirname "$(readlink -f "$0")")/../${name}"`,
      `export LD_LIBRARY_PATH="${folders.map((folder) => `$files/${folder}`).join(':')}"`,
      `exec "$files/usr/bin/${program}" "$@"`,
    )
  }
}

/** Downloads the packages and what they need for the state that apt has been told, and unpacks them into a new folder. */
export function downloadAndUnpack(
  work: string,
  options: readonly string[],
  packages: readonly string[],
  folder: string,
  isLeftOut: (archive: string) => boolean = () => false,
): void {
  const quietly = ['-y', '--no-install-recommends', '--download-only']
  apt([...options, '-o', 'Debug::NoLocking=1', 'install', ...quietly, ...packages])
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  const archives = globSync(join(work, 'cache/archives/*.deb'))
  for (const archive of archives) if (!isLeftOut(basename(archive))) unpack(archive, folder)
}

/** Where the unpacked packages have their libraries, from the folder. */
export function libraryFolders(folder: string): string[] {
  return globSync(['usr/lib/*-linux-gnu', 'usr/lib/*-linux-gnu/ceph', 'lib/*-linux-gnu'], { cwd: folder })
}

export function writeProgram(path: string, ...lines: readonly string[]): void {
  mkdirSync(join(path, '..'), { recursive: true })
  writeFileSync(`${path}.part`, ['#!/bin/sh', ...lines, ''].join('\n'))
  chmodSync(`${path}.part`, 0o755)
  renameSync(`${path}.part`, path)
}

/** Puts a folder that is complete into the place of another. */
export function replace(part: string, target: string): void {
  rmSync(target, { recursive: true, force: true })
  renameSync(part, target)
}

export function inWorkFolder(action: (work: string) => void): void {
  const work = mkdtempSync(join(tmpdir(), 'holdfast-unpack-'))
  try {
    action(work)
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

export function unpack(archive: string, folder: string): void {
  const { status, stderr } = spawnSync('dpkg', ['-x', archive, folder], { encoding: 'utf8' })
  if (status !== 0) throw new Error(`dpkg -x: ${stderr.trim()}`)
}

/** Options for apt. `installed`: what it takes for installed; a file of dpkg's. */
export function privateState(work: string, installed: string): string[] {
  for (const folder of ['state/lists/partial', 'cache/archives/partial']) {
    mkdirSync(join(work, folder), { recursive: true })
  }
  const settings = {
    'Dir::State': join(work, 'state'),
    'Dir::State::status': installed,
    'Dir::Cache': join(work, 'cache'),
    'Acquire::Languages': 'none',
    // The folder is private, so apt's own user could not write to it.
    'APT::Sandbox::User': 'root',
  }
  return Object.entries(settings).flatMap(([key, value]) => ['-o', `${key}=${value}`])
}
