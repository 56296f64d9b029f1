import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { onTestFinished } from 'vitest'

/** A temporary folder with these files, called `src`; gone when the test ends. */
export function folderWith(files: Record<string, string>, parent: string = tmpdir()): string {
  mkdirSync(parent, { recursive: true })
  const above = mkdtempSync(join(parent, 'holdfast-check-'))
  onTestFinished(() => rmSync(above, { recursive: true, force: true }))
  const folder = join(above, 'src')
  for (const [name, text] of Object.entries(files)) {
    const path = join(folder, name)
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
  }
  return folder
}
