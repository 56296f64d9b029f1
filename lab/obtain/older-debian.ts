// One package of an older Debian release, unpacked into a folder of ours and never installed.
//
// The mirror is the one that the machine itself uses, asked of its own apt; everything that apt writes goes to
// private state, so neither the machine's package lists nor its sources change. No rights are needed.

import { cpSync, existsSync, globSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { apt } from './apt.ts'
import { inWorkFolder, privateState, unpack } from './unpacking.ts'

const archiveKeys = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** Puts `program` of the package beside the other unpacked programs, as `target`. */
export function unpackFromOlderDebian(
  { package: name, release, program }: { package: string; release: string; program: string },
  target: string,
): void {
  inWorkFolder((work) => {
    writeFileSync(join(work, 'status'), '')
    const options = privateState(work, join(work, 'status'))
    const sources = join(work, 'sources.list')
    const keys = existsSync(archiveKeys) ? `[signed-by=${archiveKeys}] ` : ''
    writeFileSync(sources, `deb ${keys}${mirror(options)} ${release} main\n`)
    const older = [...options, '-o', `Dir::Etc::sourcelist=${sources}`, '-o', 'Dir::Etc::sourceparts=-']
    apt([...older, 'update'])
    apt([...older, 'download', name], { cwd: work })

    const [archive] = globSync(join(work, '*.deb'))
    if (archive === undefined) throw new Error(`${release} has no ${name}`)
    unpack(archive, join(work, 'files'))
    mkdirSync(dirname(target), { recursive: true })
    // Renamed into place, so that a run that is killed here does not leave half a program for the next to find.
    cpSync(join(work, 'files', program), `${target}.part`)
    renameSync(`${target}.part`, target)
  })
}

/** Where the machine's own packages come from: what apt would fetch for its release, without fetching it. */
function mirror(options: readonly string[]): string {
  const codename = /^VERSION_CODENAME=(.+)$/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1]
  const uris = apt([...options, '--print-uris', 'update'])
  const found = new RegExp(`^'(.+/)dists/${codename}/InRelease'`, 'm').exec(uris)?.[1]
  if (codename === undefined || found === undefined) throw new Error('apt names no mirror of Debian here')
  return found
}
