// Gets what is missing. Quick when nothing is: then it neither calls a package manager nor takes a lock.

import { join } from 'node:path'
import { install, mayInstall } from './apt.ts'
import { addressVariable, type Engine, engines, type Needed, recipes } from './engines.ts'
import { addressOf, find, unpacked, versionOf, whatToInstall } from './find.ts'
import { installFromNpm } from './npm.ts'
import { unpackFromOlderDebian } from './other-debian.ts'
import { unpackWithDependencies } from './unpacking.ts'

export interface Report {
  readonly name: Needed
  readonly ok: boolean
  readonly text: string
}

/** A server that is lent to the tests need not be installed. */
export function isMissing(name: Needed): boolean {
  return find(name) === null && lent(name) === null
}

/** Tries to get each of these; what went wrong is kept for the report, because one failure must not hide others. */
export function obtain(missing: readonly Needed[]): Map<Needed, string> {
  const problems = new Map<Needed, string>()
  const ordinary = missing.filter((name) => {
    const { olderDebian, isUnpacked, npm } = recipes[name]
    return olderDebian === undefined && npm === undefined && !isUnpacked
  })
  if (ordinary.length > 0 && mayInstall()) {
    attempt(ordinary, problems, () => install(ordinary.flatMap((name) => recipes[name].debian)))
  }
  for (const name of missing) {
    const { olderDebian, isUnpacked, npm, programs, debian } = recipes[name]
    const [program] = programs
    if (isUnpacked) attempt([name], problems, () => unpackWithDependencies(debian, unpacked, name, programs))
    if (npm !== undefined) attempt([name], problems, () => installFromNpm(npm, unpacked, name, programs))
    if (olderDebian === undefined || program === undefined) continue
    attempt([name], problems, () =>
      unpackFromOlderDebian(
        { package: debian[0] ?? name, release: olderDebian, program: `usr/bin/${program}` },
        join(unpacked, 'bin', program),
      ),
    )
  }
  return problems
}

function attempt(names: readonly Needed[], problems: Map<Needed, string>, action: () => void): void {
  try {
    action()
  } catch (error) {
    for (const name of names) problems.set(name, (error as Error).message)
  }
}

export async function reportOn(name: Needed, installed: boolean, problem?: string): Promise<Report> {
  const address = lent(name)
  if (address !== null) return { name, ok: true, text: `at the address in ${address}` }
  const found = find(name)
  if (found === null) {
    return { name, ok: false, text: `missing: ${whatToInstall(name)}${problem ? ` (${problem})` : ''}` }
  }
  const { olderDebian, npm } = recipes[name]
  const origin = found.path.startsWith(unpacked)
    ? `unpacked from ${npm ? 'npm' : `Debian ${olderDebian ?? ''}`.trim()}`
    : installed
      ? 'installed just now'
      : 'found'
  return { name, ok: true, text: `${await versionOf(found)}, ${origin}: ${found.path}` }
}

function lent(name: Needed): string | null {
  if (!(engines as readonly string[]).includes(name)) return null
  const engine = name as Engine
  return addressOf(engine) === null ? null : addressVariable(engine)
}
