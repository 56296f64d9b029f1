// Finds what is there already. It only looks at files, so asking costs next to nothing.

import { execFile } from 'node:child_process'
import { accessSync, constants, globSync, realpathSync, statSync } from 'node:fs'
import { basename, delimiter, dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { addressVariable, type Engine, engines, folderVariable, type Needed, recipes } from './engines.ts'

/** Programs that were unpacked here because the machine's own packages do not have them. */
export const unpacked = resolve(import.meta.dirname, '../../.cache/servers')

export interface Found {
  readonly name: Needed
  /** The program, or the Java archive. */
  readonly path: string
  /** Every program of the recipe by its name. */
  readonly programs: Readonly<Record<string, string>>
  readonly jar?: string
}

/** `folder`: where another version of it lies. */
export function find(name: Needed, folder = process.env[folderVariable(name)] || undefined): Found | null {
  const { programs, alsoIn, jar: usual } = recipes[name]
  const jar = usual === undefined || folder === undefined ? usual : join(folder, basename(usual))
  const found: Record<string, string> = {}
  for (const program of programs) {
    const path =
      folder === undefined || jar !== undefined
        ? findProgram(program, [
            ...Object.values(found).map((each) => dirname(realpathSync(each))),
            ...(alsoIn ?? []),
          ])
        : join(folder, program)
    if (path === null || !isProgram(path)) return null
    found[program] = path
  }
  const path = jar ?? found[programs[0] ?? '']
  if (path === undefined || (jar !== undefined && !isReadable(jar))) return null
  return { name, path, programs: found, ...(jar === undefined ? {} : { jar }) }
}

/** Finds a needed program, or throws an error that says in one sentence what to do about it. */
export function need(name: Needed): Found {
  const found = find(name)
  if (found === null)
    throw new Error(`${name} is missing: run npm run servers:install, or ${whatToInstall(name)}`)
  return found
}

export function programOf(found: Found, program: string): string {
  const path = found.programs[program]
  if (path === undefined) throw new Error(`${found.name} comes without ${program}`)
  return path
}

export function whatToInstall(name: Needed): string {
  const { programs, jar, debian, olderDebian, npm } = recipes[name]
  const folder = process.env[folderVariable(name)]
  if (folder)
    return `put ${(jar ? [basename(jar)] : programs).map((each) => `\`${each}\``).join(', ')} into ${folder}, the folder in ${folderVariable(name)}.`
  const what = [...programs.map((program) => `\`${program}\` on PATH`), ...(jar ? [jar] : [])].join(', ')
  const where = olderDebian
    ? `in Debian only up to ${olderDebian}`
    : npm
      ? `npm install -g ${npm}`
      : `on Debian: apt-get install -y --no-install-recommends ${debian.join(' ')}`
  const address = isEngine(name) ? `, or set ${addressVariable(name)} to one that runs` : ''
  return `install it so that there is ${what} (${where})${address}.`
}

/** The address of a server that is already running and is lent to the tests. */
export function addressOf(engine: Engine): string | null {
  return process.env[addressVariable(engine)] || null
}

function isEngine(name: Needed): name is Engine {
  return (engines as readonly string[]).includes(name)
}

function findProgram(program: string, alsoIn: readonly string[]): string | null {
  const onPath = (process.env.PATH ?? '').split(delimiter).filter((folder) => folder !== '')
  // Servers live in sbin, which is not on everybody's PATH.
  const folders = [
    ...onPath,
    '/usr/sbin',
    '/usr/local/sbin',
    ...alsoIn.flatMap(highestFirst),
    join(unpacked, 'bin'),
  ]
  return folders.map((folder) => join(folder, program)).find(isProgram) ?? null
}

function highestFirst(pattern: string): string[] {
  if (!pattern.includes('*')) return [pattern]
  return globSync(pattern).sort((a, b) => b.localeCompare(a, 'en', { numeric: true }))
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}

function isReadable(path: string): boolean {
  try {
    accessSync(path, constants.R_OK)
    return true
  } catch {
    return false
  }
}

export async function versionOf(found: Found): Promise<string> {
  if (found.jar !== undefined) return firstVersionIn(namesBeside(found.jar))
  const { stdout, stderr } = await promisify(execFile)(found.path, [...recipes[found.name].versionArguments])
  return firstVersionIn(stdout || stderr)
}

/** Debian puts the version into the name of a link beside the archive. */
function namesBeside(jar: string): string {
  return globSync(jar.replace(/\.jar$/, '-[0-9]*.jar'))
    .map((path) => basename(path))
    .join(' ')
}

function firstVersionIn(text: string): string {
  return /\d+(\.\d+)+/.exec(text)?.[0] ?? 'unknown version'
}
