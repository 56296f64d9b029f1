/** `holdfast advise`: is a lock needed at all, what fits instead, and what a lock gives here and what it does not. */
import {
  type EngineFit,
  engines,
  type Fit,
  fits,
  guarantees,
  noLockReplaces,
  ttlAdvice,
} from './advice.data.ts'
import { asking } from './asking.ts'
import { usageError } from './exits.ts'
import { bold, isTerminal, out, outJson } from './terminal.ts'

export interface AdviseFlags {
  readonly for?: string
  readonly purpose?: 'efficiency' | 'correctness'
  readonly reach?: 'machine' | 'region' | 'regions'
  readonly engine?: string
  /** Grants a second of one name. */
  readonly rate?: number
  readonly hold?: number
  readonly pause?: number
  readonly json?: boolean
}

export interface Advice extends Pick<Fit, 'lock' | 'answer' | 'why' | 'code' | 'page'> {
  /** Only where a lock is needed. */
  readonly engine?: string
  readonly url?: string
  readonly ttlMs?: number
  readonly gives: readonly string[]
  readonly givesNot: readonly string[]
  readonly remarks: readonly string[]
}

export async function advise(flags: AdviseFlags): Promise<number> {
  const asked = flags.for === undefined && process.stdin.isTTY === true ? await ask(flags) : flags
  const advice = adviceFor(asked)
  if (flags.json || !isTerminal()) outJson(advice)
  else out(asText(advice))
  return 0
}

const TTL_MS = 15_000
const PAUSE_SHARE = 1.5

export function adviceFor(flags: AdviseFlags): Advice {
  const { purpose = 'correctness', reach = 'region', pause = 0 } = flags
  const { key: _, question: __, ...fit } = oneOf('--for', fits, flags.for)
  const wanted = flags.engine === undefined ? undefined : oneOf('--engine', engines, flags.engine)
  const against = wanted?.not === undefined ? [] : [wanted.not]
  if (fit.lock === 'no') return { ...fit, gives: [], givesNot: [], remarks: [...against, ...noLockReplaces] }
  const engine = engineFor(wanted, reach)
  const isSafe = engine.isFenced && purpose === 'correctness'
  return {
    ...fit,
    engine: engine.key,
    url: engine.url,
    ttlMs: Math.max(TTL_MS, Math.ceil((pause * PAUSE_SHARE) / 1_000) * 1_000),
    gives: [
      isSafe ? `${guarantees.correctness} For that, put a guard into the resource.` : guarantees.efficiency,
    ],
    givesNot: [
      ...(engine.isFenced ? [guarantees.noGuard] : [guarantees.noFence]),
      ...(engine.reach === 'machine' ? [guarantees.machine] : []),
      ...(reach === 'regions' ? [guarantees.regions] : []),
    ],
    remarks: [...against, engine.note, ttlAdvice, ...rateRemarks(flags, engine), ...noLockReplaces],
  }
}

/** What is there, unless it is advised against or does not reach. Else what fits best. */
function engineFor(wanted: EngineFit | undefined, reach: AdviseFlags['reach']): EngineFit {
  const reaches = (engine: EngineFit) => reach === 'machine' || engine.reach !== 'machine'
  if (wanted !== undefined && wanted.not === undefined && reaches(wanted)) return wanted
  return oneOf(
    '--engine',
    engines,
    reach === 'machine' ? 'sqlite' : wanted?.not === undefined ? 'postgres' : 'etcd',
  )
}

function rateRemarks({ rate, hold = 0 }: AdviseFlags, { handOverMs }: EngineFit): string[] {
  if (rate === undefined) return []
  const most = 1_000 / (hold + handOverMs)
  const sum = `1000 / (${hold} ms + ${handOverMs} ms) = ${Math.floor(most)} grants a second for one name`
  if (rate <= most) return [`${sum}, and you need ${rate}.`]
  return [
    `${sum}, and you need ${rate}: hold it for less time, or use more names (the account, not the table).`,
  ]
}

function oneOf<T extends { readonly key: string }>(
  flag: string,
  among: readonly T[],
  key: string | undefined,
): T {
  const found = among.find((each) => each.key === key)
  if (found !== undefined) return found
  throw usageError(`${flag} must be one of: ${among.map((each) => each.key).join(', ')}.`)
}

function ask(flags: AdviseFlags): Promise<AdviseFlags> {
  return asking(async (ask) => {
    const choose = async (question: string, choices: readonly (readonly [key: string, text: string])[]) => {
      const list = choices.map(([, text], index) => `  ${index + 1}  ${text}`).join('\n')
      for (;;) {
        const [key] = choices[Number(await ask(`${question}\n${list}\n> `)) - 1] ?? []
        if (key !== undefined) return key
      }
    }
    const questions = fits.map(({ key, question }) => [key, question] as const)
    const what = await choose('What is it for?', questions)
    if (fits.find(({ key }) => key === what)?.lock === 'no') return { ...flags, for: what }
    const purpose = await choose('If two do it at once,', [
      ['efficiency', 'time or money is wasted, and nothing breaks'],
      ['correctness', 'something is corrupted'],
    ])
    const reach = await choose('They run', [
      ['machine', 'on one machine'],
      ['region', 'on several machines of one region'],
      ['regions', 'in several regions'],
    ])
    const engine = await choose('What do you run already?', [
      ...engines.map(({ key, note }) => [key, `${key}: ${note}`] as const),
      ['', 'none of these'],
    ])
    const given = { purpose, reach, ...(engine !== '' && { engine }) } as Partial<AdviseFlags>
    return { ...flags, for: what, ...given }
  })
}

function asText(advice: Advice): string {
  const { lock, answer, why, code, page, engine, url, ttlMs = 0, gives, givesNot, remarks } = advice
  const list = (title: string, texts: readonly string[]) =>
    texts.length === 0 ? [] : [bold(title), ...texts.map((text) => `  ${text}`)]
  return [
    bold(lock === 'no' ? `No lock. Use ${answer}.` : `A lock: ${answer}.`),
    `  ${why}`,
    ...list('Code', [code, `see docs/${page}`]),
    ...list('Engine', engine === undefined ? [] : [`${engine}, ${url}`, `TTL ${ttlMs / 1_000} s`]),
    ...list('It gives', gives),
    ...list('It does not give', givesNot),
    ...list('Mind', remarks),
  ].join('\n')
}
