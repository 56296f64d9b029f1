/**
 * The log of events, for watchers. Triggers write it, in the transactions that make the changes, and only while the file is
 * watched. They belong to the connection and not to the file.
 *
 *   closed ──a watcher comes──▶ open                   with a new id             [openLog]
 *   open ──a watcher comes, or prolongs──▶ open                                  [openLog]
 *   open ──`watched_until` has come──▶ closed          the log is emptied        [openNames]
 *
 * While it is open it has every event since it was opened, up to the last `KEPT_EVENTS`. A position in it means
 * something only together with its id.
 */
import { ID_LENGTH } from '../../../base/ids.ts'
import { KEPT_EVENTS } from '../../../kit/follow-log.ts'

function trigger(name: string, change: string, row: 'new' | 'old', kind: string, condition = ''): string {
  const token = change.endsWith('holders') ? `${row}.token` : 'NULL'
  return `
    CREATE TEMP TRIGGER ${name} AFTER ${change} WHEN (SELECT log_id FROM meta) IS NOT NULL ${condition}
    BEGIN
      INSERT INTO events (kind, namespace, name, id, holder, owner, token)
      SELECT ${kind}, ${row}.namespace, ${row}.name, substr(${row}.attempt, 1, ${ID_LENGTH}), holder, ${row}.owner, ${token}
      FROM sessions WHERE no = ${row}.session;
    END;`
}

/** A session that has expired is marked with a time below zero before it is removed. */
const ENDING = `CASE
  WHEN EXISTS (SELECT 1 FROM marks WHERE session = old.session AND attempt = old.attempt AND kind = 'force-released')
    THEN 'force-released'
  WHEN expires_at < 0 THEN 'expired' ELSE 'released' END`

/** A waiter that is granted becomes a holder before it leaves the queue. */
const IS_NOT_GRANTED = `AND NOT EXISTS (SELECT 1 FROM holders
  WHERE namespace = old.namespace AND name = old.name AND attempt = old.attempt AND session = old.session)`

export const LOG_TRIGGERS = [
  trigger('log_holder', 'INSERT ON main.holders', 'new', "'acquired'"),
  trigger('log_end', 'DELETE ON main.holders', 'old', ENDING),
  trigger('log_waiter', 'INSERT ON main.waiters', 'new', "'waiting'"),
  trigger('log_gave_up', 'DELETE ON main.waiters', 'old', "'gave-up'", IS_NOT_GRANTED),
  `CREATE TEMP TRIGGER log_limit AFTER INSERT ON main.events BEGIN
    DELETE FROM events WHERE no <= new.no - ${KEPT_EVENTS};
  END;`,
].join('')
