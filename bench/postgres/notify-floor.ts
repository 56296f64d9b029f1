/**
 * The floor of handing over: a row that is a line, and a NOTIFY to whoever is next. There is no time to live, no owner,
 * no renewal and no token; a release is one statement that commits, and the message that it sends.
 */
import pg from 'pg'
import type { Taker } from '../subject.ts'

export function notifyFloor(url: string): Taker {
  return {
    name: 'LISTEN/NOTIFY floor',
    async openTaking() {
      const pool = new pg.Pool({ connectionString: url, max: 10 })
      const listener = new pg.Client(url)
      await listener.connect()
      await listener.query('LISTEN bench_floor')
      const waiting: (() => void)[] = []
      let isHeld = false
      listener.on('notification', () => waiting.shift()?.())
      return {
        async take() {
          if (isHeld) await new Promise<void>((resolve) => waiting.push(resolve))
          isHeld = true
          return () => pool.query("SELECT pg_notify('bench_floor', '')")
        },
        async close() {
          await listener.end()
          await pool.end()
        },
      }
    },
  }
}
