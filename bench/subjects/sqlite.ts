import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { createLocker } from 'holdfast'
import { sqlite } from 'holdfast/sqlite'
import type { Comparison, Contender, Subject } from '../subject.ts'

type Synchronous = 'normal' | 'full'

const ttlMs = 15_000

/** The least that a lock in SQLite can do: two statements, each in a transaction of its own. */
function statements(synchronous: Synchronous): Contender {
  return {
    name: 'raw',
    async open(folder) {
      const database = new DatabaseSync(join(folder, 'raw.db'))
      database.exec(`
        PRAGMA journal_mode = WAL;
        PRAGMA synchronous = ${synchronous};
        CREATE TABLE locks (name TEXT PRIMARY KEY, owner TEXT NOT NULL, expires_ms REAL NOT NULL)
          WITHOUT ROWID, STRICT;
      `)
      const acquire = database.prepare(`
        INSERT INTO locks (name, owner, expires_ms) VALUES (:name, :owner, :now + ${ttlMs})
        ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_ms = excluded.expires_ms
        WHERE expires_ms <= :now
      `)
      const release = database.prepare('DELETE FROM locks WHERE name = :name AND owner = :owner')
      return {
        async pair(name) {
          const owner = name
          const acquired = acquire.run({ name, owner, now: performance.now() })
          const released = release.run({ name, owner })
          if (acquired.changes !== 1 || released.changes !== 1) throw new Error(`${name} was taken`)
        },
        async close() {
          database.close()
        },
      }
    },
  }
}

function holdfast(synchronous: Synchronous): Contender {
  return {
    name: 'holdfast',
    async open(folder) {
      const locker = createLocker(sqlite({ path: join(folder, 'locks.db'), synchronous }), { ttlMs })
      return {
        async pair(name) {
          const lease = await locker.acquire(name)
          await lease.release()
        },
        close: () => locker.close(),
      }
    },
  }
}

function comparison(synchronous: Synchronous): Comparison {
  return {
    setting: `synchronous ${synchronous.toUpperCase()}`,
    contenders: [statements(synchronous), holdfast(synchronous)],
  }
}

export const subject = (): Subject => ({
  raw: 'an upsert where expired and a DELETE by owner, prepared, each its own transaction, in WAL mode',
  comparisons: [comparison('normal'), comparison('full')],
  handOver: { url: (folder) => `sqlite:${join(folder, 'locks.db')}`, processes: [1, 2] },
})
