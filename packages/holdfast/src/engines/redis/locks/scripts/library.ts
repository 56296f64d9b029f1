import { WATCHED_FOR_MS } from '../../../../kit/follow-log.ts'
import { LOCK_CAPACITY } from '../../../../spi.ts'
import { holders } from './holders.ts'
import { log } from './log.ts'
import { queue } from './queue.ts'
import { steps } from './steps.ts'

/**
 * Everything that is rare: names with waiters, shared holders, permits, data, closed names, foreign holders. It is one
 * Lua function that is called at the first use, so that the common path pays for none of it.
 *
 * A name, as stored (layout version 1; `lock` is its key, see docs/adr/0010-redis-layout.md):
 *
 *   lock          hf1|<attempt>|<session>|<body>|<token>|<granted at: seconds.microseconds>   one exclusive holder
 *                 hf1m|<generation>     several holders, in lock:h; lives as long as the last of them
 *                 hf1c                  closed: not held, and not to be granted yet
 *                 anything else         a foreign client's
 *   lock:s        hash: w:<who>     a waiter: <dead from>|<looks at>|<channel>|<since>|<weight>|<mode>|<body>: until when it
 *                                   counts, and when its process will look by itself
 *                       h:<who>     a holder of several: <weight>|<mode>|<token>|<granted at>|<body>
 *                       g, hw, c    generation, held weight, closed until
 *                       cap         capacity, while there are several holders, or waiters
 *                       d           data
 *   lock:q        sorted set: waiters, by their position in the queue
 *   lock:h        sorted set: holders of several, by the end of their time
 *   lock:x:<who>  this attempt can never land: 'abandoned' or 'force-released'
 *   lock:x:<who>:why   the operator's reason for a force release
 *
 *   `who` is <attempt>|<public half of the session's id>, `body` is <lock delay>|<ttl>|<json of label, note and owner>.
 *
 * One script is one step: nothing can come between. What may go wrong between two of them:
 * - a holder's time runs out: Redis removes the key, and the next look grants to the first waiter;
 * - a waiter dies: its position counts only until its heartbeat ends, and what it is granted ends then too (G10);
 * - a push is lost: the next heartbeat or look answers with the grant (T19, lost wake-ups);
 * - the lock key is deleted: its holders are over, also those of lock:h (their generation is not current);
 * - lock:s or lock:q is deleted: its waiters are lost, and are told at their next heartbeat;
 * - lock:s is deleted: the holders of several are not known any more, and the name stays closed until the end of
 *   the longest of them.
 */
export const library = `
local function library(fencing, watch, now, nowUs, draw_token, refusal, is_held)
  local lib = {}
  local call, sub, match, floor = redis.call, string.sub, string.match, math.floor
  local is_fenced = fencing == '1' or fencing == '2'
  local is_cluster = fencing == '2' or fencing == '3'
  local nowMs = floor(nowUs / 1000)
  local LOCK = ${LOCK_CAPACITY}
  local HINT_MARGIN_MS = 100
  local POLL_MS = 400
  local MOST_DEAD = 100
  local WATCHED_FOR_MS = ${WATCHED_FOR_MS}
${log}${holders}${queue}${steps}
  return lib
end
`
