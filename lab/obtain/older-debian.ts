// One package of an older Debian release, unpacked into a folder of ours and never installed.
//
// The mirror is the one that the machine itself uses, asked of its own apt; everything that apt writes goes to
// private state, so neither the machine's package lists nor its sources change. No rights are needed.

import { spawnSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { apt } from './apt.ts'

const archiveKeys = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** Puts `program` of the package beside the other unpacked programs, as `target`. */
export function unpackFromOlderDebian(
  { package: name, release, program }: { package: string; release: string; program: string },
  target: string,
): void {
  const work = mkdtempSync(join(tmpdir(), 'holdfast-unpack-'))
  try {
    const options = privateState(work)
    const sources = join(work, 'sources.list')
    const keys = existsSync(archiveKeys) ? `[signed-by=${archiveKeys}] ` : ''
    writeFileSync(sources, `deb ${keys}${mirror(options)} ${release} main\n`)
    const older = [...options, '-o', `Dir::Etc::sourcelist=${sources}`, '-o', 'Dir::Etc::sourceparts=-']
    apt([...older, 'update'])
    apt([...older, 'download', name], { cwd: work })

    const [archive] = globSync(join(work, '*.deb'))
    if (archive === undefined) throw new Error(`${release} has no ${name}`)
    const { status, stderr } = spawnSync('dpkg', ['-x', archive, join(work, 'files')], { encoding: 'utf8' })
    if (status !== 0) throw new Error(`dpkg -x: ${stderr.trim()}`)
    mkdirSync(dirname(target), { recursive: true })
    // Renamed into place, so that a run that is killed here does not leave half a program for the next to find.
    cpSync(join(work, 'files', program), `${target}.part`)
    renameSync(`${target}.part`, target)
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

function privateState(work: string): string[] {
  for (const folder of ['state/lists/partial', 'cache/archives/partial']) {
    mkdirSync(join(work, folder), { recursive: true })
  }
  writeFileSync(join(work, 'state/status'), '')
  const settings = {
    'Dir::State': join(work, 'state'),
    'Dir::State::status': join(work, 'state/status'),
    'Dir::Cache': join(work, 'cache'),
    'Acquire::Languages': 'none',
    // The folder is private, so apt's own user could not write to it.
    'APT::Sandbox::User': 'root',
  }
  return Object.entries(settings).flatMap(([key, value]) => ['-o', `${key}=${value}`])
}

/** Where the machine's own packages come from: what apt would fetch for its release, without fetching it. */
function mirror(options: readonly string[]): string {
  const codename = /^VERSION_CODENAME=(.+)$/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1]
  const uris = apt([...options, '--print-uris', 'update'])
  const found = new RegExp(`^'(.+/)dists/${codename}/InRelease'`, 'm').exec(uris)?.[1]
  if (codename === undefined || found === undefined) throw new Error('apt names no mirror of Debian here')
  return found
}
