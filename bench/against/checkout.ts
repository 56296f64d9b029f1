/**
 * Another commit of this repository, built, in a folder of its own. The files come from `git archive`, so that git keeps no
 * record of a worktree that an interrupted run would leave behind. The dependencies are those of here: both versions use
 * the same client libraries.
 */
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'

const root = join(import.meta.dirname, '../..')

/** The library of this working tree. */
export const ownPackage = join(root, 'packages/holdfast')

export interface Commit {
  readonly id: string
  readonly title: string
}

export function commitOf(ref: string): Commit {
  let id: string
  try {
    id = git('rev-parse', '--verify', '--quiet', '--end-of-options', `${ref}^{commit}`)
  } catch {
    throw new Error(`There is no commit ${ref} here.`)
  }
  return { id, title: git('show', '--no-patch', '--format=%s', id) }
}

export function hasChanges(): boolean {
  return git('status', '--porcelain', '--', 'packages/holdfast', 'bench') !== ''
}

/** Returns the folder of its package. */
export async function buildCommit({ id }: Commit, folder: string): Promise<string> {
  mkdirSync(folder, { recursive: true })
  const archive = join(folder, 'commit.tar')
  git('archive', '--format=tar', '-o', archive, id)
  execFileSync('tar', ['-xf', archive, '-C', folder])
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
  await build(folder)
  return join(folder, 'packages/holdfast')
}

/** By that commit's own script. In a process group of its own, so that an interrupted run can end all of it. */
async function build(folder: string): Promise<void> {
  const child = spawn('npm', ['run', 'build', '--silent'], {
    cwd: folder,
    detached: true,
    stdio: ['ignore', 2, 2],
  })
  const end = () => {
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL')
  }
  process.prependListener('exit', end)
  try {
    const [code] = await once(child, 'exit')
    if (code !== 0) throw new Error(`The build of the other commit failed with exit code ${code}.`)
  } finally {
    process.off('exit', end)
  }
}

function git(...args: string[]): string {
  return execFileSync('git', args, {
    cwd: root,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    maxBuffer: 2 ** 26,
  }).trim()
}
