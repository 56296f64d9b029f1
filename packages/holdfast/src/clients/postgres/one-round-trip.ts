/**
 * A statement with parameters over postgres.js in one round trip.
 *
 * By itself postgres.js asks the server first of which types the parameters are, and sends them when it has heard: two
 * round trips for everything that is not prepared under a name, and behind a pooler nothing can be. What we send is text
 * to the server anyway, so nobody has to know. postgres.js does not ask if it finds the parameters in the statement
 * already, as it does when it repeats one.
 *
 * Behind a pooler in transaction mode a statement in one piece must have its connection for itself: postgres.js would
 * send the first half of another right behind it, and the pooler would take the connection away between the two. So
 * `onexecute` says that the connection is full.
 *
 * If another release of postgres.js does not look for parameters there, the server refuses the statement before it does
 * anything (08P01, when it binds the parameters), and it is sent in the usual way from then on. A pooler says 08P01 too,
 * when a server has gone in the middle of a statement: that one may have been applied, and is not sent again.
 *
 * Only what both clients send as the same text goes in one piece: of bytes, dates, lists and objects postgres.js has to
 * know the type before it can write them.
 */
import { sqlStateOf } from './failures.ts'
import { asPlainText, isPlain } from './plain-text.ts'
import type { Parameter, PostgresJsQuery, PostgresJsRunner } from './types.ts'

const PROTOCOL_VIOLATION = '08P01'

type Whole = PostgresJsQuery & { parameters?: Parameter[] }

interface RunsWhole {
  unsafe(
    text: string,
    parameters: [],
    options: { prepare: false; simple: false; onexecute: () => false },
  ): Whole
}

/** Clients that were found not to. */
const halving = new WeakSet<object>()

/** `client` is what `sql` belongs to. */
export async function inOneRoundTrip(
  client: object,
  sql: PostgresJsRunner,
  text: string,
  parameters: readonly Parameter[],
  onSent: () => void = () => {},
): Promise<readonly unknown[]> {
  if (!halving.has(client) && parameters.every(isPlain)) {
    const onexecute = (): false => {
      onSent()
      return false
    }
    const options = { prepare: false, simple: false, onexecute } as const
    const statement = (sql as unknown as RunsWhole).unsafe(text, [], options)
    // As text: postgres.js, not knowing the type, may leave a number as it is, and cannot write it then.
    statement.parameters = parameters.map((value) => (value === null ? null : String(value)))
    try {
      return await statement.values()
    } catch (error) {
      if (!isRefusedBinding(error)) throw error
      halving.add(client)
    }
  }
  return sql.unsafe(text, asPlainText(sql, parameters), { prepare: false }).values()
}

function isRefusedBinding(error: unknown): boolean {
  const { severity, routine } = error as { readonly severity?: unknown; readonly routine?: unknown }
  return sqlStateOf(error) === PROTOCOL_VIOLATION && severity === 'ERROR' && routine === 'exec_bind_message'
}
