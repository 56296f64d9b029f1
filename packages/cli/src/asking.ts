/** Questions on a terminal. They are asked on stderr, so that stdout has nothing but the answer of the command. */
import { createInterface } from 'node:readline/promises'
import { EXIT, Exit } from './exits.ts'

export type Ask = (question: string) => Promise<string>

/** The end of the input (Ctrl-D) ends the command. */
export async function asking<T>(work: (ask: Ask) => Promise<T>): Promise<T> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  const { promise: closed, reject } = Promise.withResolvers<never>()
  closed.catch(() => {})
  terminal.once('close', () => reject(new Exit(EXIT.nothing, 'there was no answer; nothing was changed.')))
  try {
    return await work((question) => Promise.race([terminal.question(question), closed]))
  } finally {
    terminal.close()
  }
}
