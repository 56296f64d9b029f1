/** `holdfast ls`, `show` and `watch`: a table on a terminal, JSON lines in a pipe. */
import type { AnyLocker, HolderState, NameState } from 'holdfast'
import { inWords } from './durations.ts'
import { type EngineFlags, withEngine } from './engine.ts'
import { pause } from './pause.ts'
import { clear, isTerminal, out, outJson, printable, table } from './terminal.ts'

export interface LookFlags extends EngineFlags {
  readonly json?: boolean
}

export async function ls(prefix: string | undefined, flags: LookFlags): Promise<number> {
  return listing(flags, async (locker) => {
    const states = await locker.list(prefix)
    if (isTable(flags)) out(overview(states))
    else states.forEach(outJson)
  })
}

export async function show(name: string, flags: LookFlags): Promise<number> {
  const { explainName } = await import('holdfast')
  return listing(flags, async (locker) => {
    const state = await locker.inspect(name)
    const explanation = explainName(state)
    if (!isTable(flags)) outJson({ name, explanation, ...state })
    else out([printable(explanation), ...(state === null ? [] : details(state))].join('\n\n'))
  })
}

/** Events as they come; on a terminal the table is drawn again after some. */
export async function watch(prefix: string | undefined, flags: LookFlags): Promise<number> {
  const { defaults } = await import('holdfast')
  return listing(flags, async (locker) => {
    const events = locker.watch(prefix)
    if (!isTable(flags)) {
      for await (const event of events) outJson(event)
      return
    }
    let changes = 1
    const following = (async () => {
      for await (const _ of events) changes++
    })()
    const drawing = (async () => {
      for (;;) {
        if (changes > 0) {
          changes = 0
          out(clear + overview(await locker.list(prefix)))
        }
        // As often as the library itself would look at an engine that cannot push.
        await pause(locker.clock, defaults.watchIntervalMs)
      }
    })()
    await Promise.race([following, drawing])
  })
}

function listing(flags: LookFlags, list: (locker: AnyLocker) => Promise<void>): Promise<number> {
  // A list ends when its reader has seen enough of it: `holdfast ls | head -1`.
  process.stdout.on('error', () => process.exit(0))
  return withEngine(flags, async (locker) => {
    await list(locker)
    return 0
  })
}

function isTable({ json }: LookFlags): boolean {
  return !json && isTerminal()
}

const MOST_WAITERS = 20

function overview(states: readonly NameState[]): string {
  if (states.length === 0) return 'No name is in use.'
  const rows = states.flatMap((state) => {
    const { name, holders, waiters } = state
    const waiting = waiters.length === 0 ? '' : String(waiters.length)
    if (holders.length === 0) return [[name, stateOf(state), '', '', '', waiting, '']]
    return holders.map((holder, index) =>
      index === 0 ? [name, ...columnsOf(holder, waiting)] : ['', ...columnsOf(holder, '')],
    )
  })
  return table(['NAME', 'HOLDER', 'HELD', 'LEFT', 'TOKEN', 'WAIT', 'NOTE'], rows)
}

function stateOf({ closedForMs, waiters, data }: NameState): string {
  if (closedForMs !== 0) return '(closed)'
  return waiters.length === 0 && data !== undefined ? '(data)' : '(free)'
}

function columnsOf(holder: HolderState, waiting: string): string[] {
  const { token, heldForMs, expiresInMs, note = '' } = holder
  return [labelOf(holder), inWords(heldForMs), leftOf(expiresInMs), String(token ?? ''), waiting, note]
}

function leftOf(ms: number | undefined): string {
  if (ms === undefined) return '?'
  return ms === Number.POSITIVE_INFINITY ? 'no end' : inWords(ms)
}

function labelOf({ holder, owner }: { readonly holder: string; readonly owner?: string }): string {
  return owner === undefined ? holder : `${holder} ${owner}`
}

function details({ holders, waiters, data }: NameState): string[] {
  const held = holders.map((holder) => [holder.id, ...columnsOf(holder, holder.mode)])
  const waiting = waiters
    .slice(0, MOST_WAITERS)
    .map((waiter) => [
      waiter.id,
      labelOf(waiter),
      inWords(waiter.waitingForMs),
      waiter.mode,
      waiter.note ?? '',
    ])
  const more = waiters.length - waiting.length
  return [
    ...(held.length === 0 ? [] : [table(['ID', 'HOLDER', 'HELD', 'LEFT', 'TOKEN', 'MODE', 'NOTE'], held)]),
    ...(waiting.length === 0 ? [] : [table(['ID', 'WAITER', 'WAITS', 'MODE', 'NOTE'], waiting)]),
    ...(more > 0 ? [`and ${more} more`] : []),
    ...(data === undefined ? [] : [`data  ${printable(data)}`]),
  ]
}
