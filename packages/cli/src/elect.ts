/** `holdfast elect` and `holdfast leader`: the election recipe for a command. */
import { isHoldfastError, type Locker } from 'holdfast'
import { type EngineFlags, withEngine } from './engine.ts'
import { EXIT } from './exits.ts'
import { type HoldFlags, holding, noteOf } from './holding.ts'
import { isTerminal, out, outJson, printable, say } from './terminal.ts'

export interface ElectFlags extends HoldFlags {
  readonly value?: string
  readonly allowUnfenced?: boolean
}

/** Runs the command term after term, until it ends by itself. A term's lease is given up when the command has ended (T53, early releases). */
export async function elect(name: string, command: readonly string[], flags: ElectFlags): Promise<number> {
  const { election } = await import('holdfast/recipes/election')
  return holding(flags, command, async ({ locker, ttlMs, signals, run }) => {
    const { allowUnfenced = false } = flags
    const options = { ttlMs, note: noteOf(flags, command), allowUnfenced }
    const candidate = election(locker as Locker<'fenced'>, name, options)
    const over = new AbortController()
    let exitCode: number | undefined
    await candidate.serve(
      async ({ lease, proclaim }) => {
        try {
          if (flags.value !== undefined) await proclaim(flags.value)
        } catch (error) {
          if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE')) throw error
          // Nobody would find this leader. There is another campaign.
          return say(error.message)
        }
        const end = await run(lease)
        if (end.isStopped) return signals.cancelIfAsked()
        exitCode = end.exitCode
        over.abort()
      },
      { signal: AbortSignal.any([over.signal, signals.cancelled]) },
    )
    if (exitCode === undefined) signals.cancelled.throwIfAborted()
    return exitCode ?? EXIT.internal
  })
}

export interface LeaderFlags extends EngineFlags {
  readonly json?: boolean
}

export async function leader(name: string, flags: LeaderFlags): Promise<number> {
  const { election } = await import('holdfast/recipes/election')
  return withEngine(flags, async (locker) => {
    const found = await election(locker as Locker, name, { allowUnfenced: true }).leader()
    if (flags.json || !isTerminal()) outJson(found)
    else if (found === null) out('Nobody leads.')
    else {
      const { holder, token, value } = found
      const facts = [`holder  ${printable(holder)}`, ...(token === null ? [] : [`token   ${token}`])]
      const shown = value === undefined ? [] : [`value   ${printable(asText(value))}`]
      out([...facts, ...shown].join('\n'))
    }
    return found === null ? EXIT.nothing : 0
  })
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}
