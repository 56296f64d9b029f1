import { execFileSync } from 'node:child_process'

export interface User {
  readonly uid: number
  readonly gid: number
}

/** PostgreSQL and PgBouncer refuse root. Everybody else runs them as themselves. */
export function unprivilegedUser(): User | undefined {
  if (process.getuid?.() !== 0) return undefined
  for (const name of ['postgres', 'nobody']) {
    const uid = idOf('-u', name)
    const gid = idOf('-g', name)
    if (uid !== null && gid !== null) return { uid, gid }
  }
  throw new Error('there is no user `postgres` to run PostgreSQL as, and root may not')
}

function idOf(which: '-u' | '-g', name: string): number | null {
  try {
    return Number(
      execFileSync('id', [which, name], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }),
    )
  } catch {
    return null
  }
}
