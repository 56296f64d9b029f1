/**
 * For the RETURNING of a statement: whatever the client's settings say, its commit waits until it is on the disk, and on
 * that of a synchronous standby. With `synchronous_commit = off`, a crash of the server would take back what has been
 * told: a token would be drawn twice (T68, tokens lost in a crash), an outcome forgotten and the work done again. With `local`, a fail-over
 * would, and with `remote_write` one to a standby that crashed. In a transaction of the user's it counts for the whole of it.
 */
export const ON_DISK = `CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
        THEN set_config('synchronous_commit', 'on', true) END`
