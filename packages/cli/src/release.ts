/** `holdfast release`: an operator ends one holder, and says why. */
import type { HolderState } from 'holdfast'
import { type Ask, asking } from './asking.ts'
import { inWords } from './durations.ts'
import { type EngineFlags, withEngine } from './engine.ts'
import { EXIT, Exit, usageError } from './exits.ts'
import { out, printable } from './terminal.ts'

export interface ReleaseFlags extends EngineFlags {
  readonly token?: bigint
  readonly id?: string
  readonly reason: string
  readonly yes?: boolean
}

export async function release(name: string, flags: ReleaseFlags): Promise<number> {
  const { token, id, reason, yes = false } = flags
  if (token === undefined && id === undefined)
    throw usageError('Name the holder with --token or --id; holdfast show prints both.')
  if (!yes && process.stdin.isTTY !== true) throw usageError('Without a terminal to ask on, --yes is needed.')
  return withEngine(flags, async (locker) => {
    const state = await locker.inspect(name)
    const holder = state?.holders.find((each) => (id === undefined ? each.token === token : each.id === id))
    if (holder === undefined)
      throw new Exit(EXIT.nothing, `no such holder has ${JSON.stringify(name)}; nothing was changed.`)
    out(announcement(name, holder))
    if (!yes && !(await asking(confirming))) throw new Exit(EXIT.nothing, 'nothing was changed.')
    const count = await locker.forceRelease(name, { id: holder.id, reason })
    if (count === 0) throw new Exit(EXIT.nothing, 'its holder had gone before; nothing was changed.')
    out('Released.')
    return 0
  })
}

function announcement(name: string, { holder, owner, heldForMs, note, token }: HolderState): string {
  const who = `${printable(holder)}${owner === undefined ? '' : ` (${printable(owner)})`}`
  const why = note === undefined ? '' : `, ${printable(JSON.stringify(note))}`
  const proof =
    token === null
      ? 'There is no fencing token here, so nothing refuses what it still writes.'
      : 'It passes guards until a successor has been there.'
  return (
    `This ends ${who}, which has held ${printable(name)} for ${inWords(heldForMs)}${why}. ` +
    `It learns it at its next renewal. ${proof}`
  )
}

const confirming = async (ask: Ask) => /^y(es)?$/i.test((await ask('End it? [y/N] ')).trim())
