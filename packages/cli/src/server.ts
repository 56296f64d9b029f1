/** `holdfast server`: starts the package `holdfast-server`, if it is installed here. */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { Child } from './child.ts'
import { usageError } from './exits.ts'
import { Signals } from './signals.ts'

const PACKAGE = 'holdfast-server'

export async function server(args: readonly string[]): Promise<number> {
  const child = new Child([process.execPath, programOf(PACKAGE), ...args], process.env)
  new Signals().pass((signal) => child.send(signal), child.hasTerminal)
  return child.ended.finally(() => child.done())
}

function programOf(name: string): string {
  const path = manifestOf(name)
  if (path === undefined)
    throw usageError(
      `the lock server is a package of its own, ${name}, and it is not installed here. Install it in this folder.`,
    )
  const { bin } = JSON.parse(readFileSync(path, 'utf8')) as { readonly bin: string | Record<string, string> }
  return join(dirname(path), typeof bin === 'string' ? bin : (bin[name] ?? ''))
}

/** From the folder of the caller, or beside this program. */
function manifestOf(name: string): string | undefined {
  for (const from of [join(process.cwd(), 'x'), import.meta.url])
    try {
      return createRequire(from).resolve(`${name}/package.json`)
    } catch {
      // Not there; the other place may have it.
    }
  return undefined
}
