// Debian's packages, installed without starting the services that come with them.

import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, renameSync, rmSync, writeFileSync } from 'node:fs'

/** Asked by Debian's maintainer scripts before they start a service; 101 means "do not". */
const policy = '/usr/sbin/policy-rc.d'
const savedPolicy = `${policy}.before-holdfast`
const ourPolicy =
  '#!/bin/sh\n# Written by the set-up script of Holdfast while it installs packages.\nexit 101\n'

export function mayInstall(): boolean {
  return process.getuid?.() === 0 && existsSync('/usr/bin/apt-get')
}

/** Installs packages from the machine's own sources. Throws with what apt said. */
export function install(packages: readonly string[]): void {
  // One broken source among several is no reason to give up: the install itself will tell.
  apt(['update'], { mayFail: true })
  withoutServices(() => apt(['install', '-y', '--no-install-recommends', ...packages]))
}

export function apt(arguments_: readonly string[], { mayFail = false, cwd = '/' } = {}): string {
  const patience = ['-o', 'DPkg::Lock::Timeout=300', '-o', 'Acquire::Retries=3']
  const { status, stdout, stderr, error } = spawnSync('apt-get', [...patience, ...arguments_], {
    cwd,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C' },
  })
  if (!mayFail && (error || status !== 0)) {
    const said = error?.message ?? stderr.trim().split('\n').slice(-5).join(' / ')
    throw new Error(`apt-get ${arguments_.filter((each) => !each.includes('::')).join(' ')}: ${said}`)
  }
  return stdout
}

/** Runs something while no service may be started, and leaves the machine's policy as it was. */
function withoutServices(action: () => void): void {
  // An earlier run that was killed half way left the machine's own policy here.
  if (existsSync(savedPolicy)) renameSync(savedPolicy, policy)
  if (spawnSync(policy, ['any', 'start']).status === 101) {
    action()
    return
  }
  if (existsSync(policy)) renameSync(policy, savedPolicy)
  try {
    writeFileSync(policy, ourPolicy)
    chmodSync(policy, 0o755)
    action()
  } finally {
    rmSync(policy, { force: true })
    if (existsSync(savedPolicy)) renameSync(savedPolicy, policy)
  }
}
