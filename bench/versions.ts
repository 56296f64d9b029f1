import { readFileSync } from 'node:fs'
import { findPackageJSON } from 'node:module'

/** `redlock 5.0.0-beta.2`: what a figure is about, as it is installed here. */
export function nameAndVersion(installedAs: string, calledHere = installedAs): string {
  const manifest = findPackageJSON(installedAs, import.meta.url)
  if (manifest === undefined) throw new Error(`${installedAs} is not installed`)
  const { version } = JSON.parse(readFileSync(manifest, 'utf8')) as { version: string }
  return `${calledHere} ${version.replace(/^v/, '')}`
}
