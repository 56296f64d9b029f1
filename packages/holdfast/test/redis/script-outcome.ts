/** The answer of a script, and what it leaves behind, so that a short way can be compared with the whole one. */
import type { Reply, RespClient } from 'holdfast-lab/servers'

export type Command = readonly [string, ...string[]]

export interface ScriptRun {
  readonly source: string
  readonly keys: readonly string[]
  readonly args: readonly string[]
  /** Two forms of one answer read alike. */
  readonly read?: (answer: Reply) => unknown
}

/** Durations in these tests are multiples of it, so an answer may be some seconds late. */
const STEP_MS = 20_000
const contents: Readonly<Record<string, readonly string[]>> = {
  string: ['GET'],
  hash: ['HGETALL'],
  zset: ['ZRANGE', '0', '-1', 'WITHSCORES'],
  stream: ['XRANGE', '-', '+'],
}

/**
 * Runs it on a server that has what `prepare` makes, and nothing else. Times near this moment are told by their distance, and
 * durations are rounded.
 */
export async function outcomeOf(
  wire: RespClient,
  { source, keys, args, read = (answer) => answer }: ScriptRun,
  prepare: readonly Command[],
): Promise<string> {
  await reset(wire)
  for (const command of prepare) await wire.call(...command)
  await wire.call('CONFIG', 'RESETSTAT')
  const answer = await wire
    .call('EVAL', source, keys.length, ...keys, ...args)
    .then(read)
    .catch((error: Error) => error.message.replaceAll(/[0-9a-f]{40}|user_script:\d+/g, 'script'))
  const statistics = String(await wire.call('INFO', 'commandstats'))
  const published = Number(/^cmdstat_publish:calls=(\d+)/m.exec(statistics)?.[1] ?? 0)
  const left: Reply[] = []
  for (const key of ((await wire.call('KEYS', '*')) as string[]).sort()) {
    const type = String(await wire.call('TYPE', key))
    const [command = '', ...rest] = contents[type] ?? []
    const content = await wire.call(command, key, ...rest)
    left.push([key, await wire.call('PTTL', key), type === 'hash' ? fieldsOf(content) : content])
  }
  await reset(wire)
  const text = JSON.stringify({ answer, published, left }, null, 1)
  return text.replaceAll(/\d{4,}(\.\d+|-\d+)?/g, readable)
}

async function reset(wire: RespClient): Promise<void> {
  await wire.call('REPLICAOF', 'NO', 'ONE')
  await wire.call('CONFIG', 'SET', 'maxmemory', '0')
  await wire.call('FLUSHALL')
}

/** In one order, whichever was written first. */
function fieldsOf(content: Reply): Reply {
  const texts = content as string[]
  return texts.flatMap((field, index) => (index % 2 === 0 ? [`${field}: ${texts[index + 1]}`] : [])).sort()
}

/** A time in seconds, milliseconds or microseconds; or a duration in milliseconds, or in microseconds. */
function readable(text: string): string {
  const number = Number.parseFloat(text)
  const digits = String(Math.trunc(number)).length
  if (digits < 10) return String(rounded(digits < 7 ? number : number / 1_000))
  const awayMs = number * 10 ** (13 - digits) - Date.now()
  return Math.abs(awayMs) > 10 * STEP_MS ? text : `now + ${rounded(awayMs)}`
}

const rounded = (ms: number) => Math.round(ms / STEP_MS) * STEP_MS
