/** `holdfast elect` and `holdfast leader`: the election recipe for a command. */
import type { Locker } from 'holdfast'
import { closeEngine, type EngineFlags, openEngine } from './engine.ts'
import { environmentOf, readSignKey } from './environment.ts'
import { EXIT } from './exits.ts'
import { type HoldFlags, noteOf, ttlOf, withEngine } from './holding.ts'
import { isTerminal, out, printable } from './terminal.ts'
import { runUnderLease } from './under-lease.ts'

export interface ElectFlags extends HoldFlags {
  readonly value?: string
}

/** Runs the command term after term, until it ends by itself. A term's lease is given up when the command has ended (T53, early releases). */
export async function elect(name: string, command: readonly string[], flags: ElectFlags): Promise<number> {
  const key = readSignKey(flags)
  const { election } = await import('holdfast/recipes/election')
  return withEngine(flags, async ({ locker, ...stopping }) => {
    const { signals } = stopping
    const candidate = election(locker as Locker, name, { ...ttlOf(flags), note: noteOf(flags, command) })
    const over = new AbortController()
    let exitCode: number | undefined
    await candidate.serve(
      async ({ lease, proclaim }) => {
        if (flags.value !== undefined) await proclaim(flags.value)
        const env = await environmentOf(lease, flags, key)
        const end = await runUnderLease(lease, command, env, stopping)
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
  const locker = await openEngine(flags)
  try {
    const found = await election(locker as Locker, name).leader()
    if (flags.json || !isTerminal()) out(JSON.stringify(found))
    else if (found === null) out('Nobody leads.')
    else {
      const { holder, token, value } = found
      const facts = [`holder  ${printable(holder)}`, ...(token === null ? [] : [`token   ${token}`])]
      const shown = value === undefined ? [] : [`value   ${printable(asText(value))}`]
      out([...facts, ...shown].join('\n'))
    }
    return found === null ? EXIT.nothing : 0
  } finally {
    await closeEngine(locker)
  }
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}
