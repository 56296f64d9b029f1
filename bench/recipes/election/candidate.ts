/** One process that wants to lead. Its parent kills it, or asks it to resign. */
import { openLocker } from 'holdfast'
import { election } from 'holdfast/recipes/election'

export type Said =
  | { readonly kind: 'ready' }
  | { readonly kind: 'leads' | 'ended'; readonly atMs: number; readonly token: string }

/** On the clock that all processes of the machine share. */
export function nowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6
}

if (import.meta.main) {
  const [url = '', name = '', ttlMs = '', holder = ''] = process.argv.slice(2)
  const say = (said: Said) => process.send?.(said)
  await using locker = await openLocker(url, { require: 'fenced', ttlMs: Number(ttlMs), holder })
  const stop = new AbortController()
  let resign = () => {}
  process.on('message', () => resign())
  process.on('disconnect', () => stop.abort())
  // First contact, so that the campaign that is measured opens no connection.
  await locker.inspect(name)
  say({ kind: 'ready' })
  await election(locker, name).serve(
    async (term) => {
      const token = String(term.lease.fence.token)
      say({ kind: 'leads', atMs: nowMs(), token })
      const ended = new Promise<void>((resolve) => {
        term.signal.addEventListener('abort', () => resolve())
      })
      resign = () => term.resign()
      await ended
      say({ kind: 'ended', atMs: nowMs(), token })
    },
    { signal: stop.signal },
  )
}
