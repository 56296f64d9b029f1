/** Feeds the metrics of one output from the events of the process. */
import { InvalidArgumentError } from '../base/errors.ts'
import { type EventKind, onEvent, warn, warningCounters } from '../base/events.ts'
import { ignore } from '../base/ignore.ts'
import { checkCallback, checkKnownOptions, checkNumber } from '../base/options.ts'
import { TransientMap } from '../base/transient-map.ts'
import { defaultBuckets, type Metric, metrics, type Sample } from './metrics.ts'

export interface MetricsOptions {
  /**
   * The label `group` of a name, such as `(name) => name.split('/')[0]`. Without it the label is empty. The first 100 groups
   * are kept, later ones are `other`.
   */
  readonly group?: (name: string) => string
  /** Upper bounds in seconds: of waits and renewals, default 1 ms to 60 s; of holds, default 10 ms to 1 h. */
  readonly buckets?: { readonly waits?: readonly number[]; readonly holds?: readonly number[] }
}

export interface Telemetry {
  /** Takes all listeners back, and what was registered. */
  stop(): void
}

export type Labels = Readonly<Record<string, string>>

/** One metric of an output: `recorderOf` is asked once for each set of labels. */
export interface Instrument {
  readonly recorderOf: (labels: Labels) => (value: number) => void
  readonly remove: () => void
}

/** Makes a metric of an output. `read` shows a gauge's numbers. */
export type MakeInstrument = (
  metric: Metric,
  buckets: number[],
  read: () => Iterable<readonly [Labels, number]>,
) => Instrument

type AnyEvent = Readonly<Record<string, unknown>>

type AnyFeed = (event: AnyEvent) => Sample | undefined

const MOST_GROUPS = 100

export function collect(options: MetricsOptions, make: MakeInstrument): Telemetry {
  const buckets: Record<string, readonly number[]> = { ...defaultBuckets, ...checkBuckets(options.buckets) }
  const groupOf = grouping(checkCallback('group', options.group))
  const ends: (() => void)[] = []
  // Ids that are open. No mere count: an end without its beginning, or a second one, changes nothing.
  const open = new TransientMap<string, Series>()
  const takersOf = new Map<EventKind, ((event: AnyEvent) => void)[]>()
  for (const metric of metrics) {
    const series = new AllSeries(metric, groupOf, open)
    series.instrument = make(metric, [...(buckets[metric.kind] ?? [])], () => series.read())
    ends.push(series.instrument.remove)
    for (const [kind, feed] of Object.entries(metric.feeds) as [EventKind, AnyFeed][]) {
      const takers = takersOf.get(kind) ?? []
      const take = (event: AnyEvent) => {
        const sample = feed(event)
        if (sample !== undefined) series.take(event, sample)
      }
      takersOf.set(kind, [...takers, take])
    }
  }
  for (const [kind, takers] of takersOf)
    ends.push(
      listen(kind, (event) => {
        for (const take of takers) take(event)
      }),
    )
  return { stop: () => ends.splice(0).forEach((end) => void end()) }
}

function listen(kind: EventKind, listener: (event: AnyEvent) => void): () => void {
  const heard = (event: object) => listener(event as AnyEvent)
  if (kind !== 'warning') return onEvent(kind, heard)
  warningCounters.add(heard)
  return () => void warningCounters.delete(heard)
}

interface Series {
  readonly values: readonly string[]
  readonly labels: Labels
  readonly record: (value: number) => void
  open: number
}

/** One metric: a series for each set of labels. */
class AllSeries {
  readonly #metric: Metric
  readonly #groupOf: (event: AnyEvent) => string
  readonly #open: TransientMap<string, Series>
  readonly #byLabels = new Map<string, Series>()
  instrument: Instrument | undefined
  /** Most events are of the same series as the one before. */
  last: Series | undefined

  constructor(metric: Metric, groupOf: (event: AnyEvent) => string, open: TransientMap<string, Series>) {
    this.#metric = metric
    this.#groupOf = groupOf
    this.#open = open
  }

  take(event: AnyEvent, { opens, closes, ifOpen, value = 1, as }: Sample): void {
    if (closes !== undefined) {
      const series = this.#open.get(closes)
      if (series === undefined) return
      this.#open.delete(closes)
      series.open--
    } else if (opens !== undefined) {
      if (this.#open.has(opens)) return
      const series = this.#seriesOf(event, as)
      this.#open.set(opens, series)
      series.open++
    } else if (ifOpen === undefined || this.#open.has(ifOpen)) this.#seriesOf(event, as).record(value)
  }

  *read(): Generator<readonly [Labels, number]> {
    for (const { labels, open } of this.#byLabels.values()) yield [labels, open]
  }

  #seriesOf(event: AnyEvent, as: string | undefined): Series {
    const { labels: names } = this.#metric
    const { last } = this
    let at = 0
    while (at < names.length && last?.values[at] === this.#valueAt(at, event, as)) at++
    if (last !== undefined && at === names.length) return last
    const values = names.map((_, at) => this.#valueAt(at, event, as))
    const key = values.join('\0')
    const known = this.#byLabels.get(key)
    if (known === undefined) {
      const labels = Object.fromEntries(names.map((name, at) => [name, values[at] ?? '']))
      this.last = { values, labels, record: this.instrument?.recorderOf(labels) ?? ignore, open: 0 }
      this.#byLabels.set(key, this.last)
    } else this.last = known
    return this.last
  }

  #valueAt(at: number, event: AnyEvent, as: string | undefined): string {
    const name = this.#metric.labels[at] ?? ''
    if (name === 'group') return this.#groupOf(event)
    return at === 0 && as !== undefined ? as : String(event[name])
  }
}

/** The label `group` of an event. A function of the user's that fails does not fail the lock. */
function grouping(groupOf: MetricsOptions['group']): (event: AnyEvent) => string {
  const known = new Set<string>()
  let hasWarned = false
  const textFor = (name: string): string | undefined => {
    try {
      const group: unknown = groupOf?.(name)
      return typeof group === 'string' ? group : undefined
    } catch {
      return undefined
    }
  }
  return ({ name, backend = '', namespace = '' }) => {
    if (groupOf === undefined || typeof name !== 'string') return ''
    const group = textFor(name)
    if (group === undefined && !hasWarned) {
      hasWarned = true
      const warning =
        'the group function of the metrics threw, or answered no text: such names count as "other"'
      warn({ backend: String(backend), namespace: String(namespace), code: 'HOLDFAST_TELEMETRY', warning })
    }
    if (group === undefined || (!known.has(group) && known.size >= MOST_GROUPS)) return 'other'
    known.add(group)
    return group
  }
}

function checkBuckets(buckets: MetricsOptions['buckets'] = {}): typeof buckets {
  checkKnownOptions('buckets', buckets, Object.keys(defaultBuckets))
  for (const [name, bounds] of Object.entries(buckets)) {
    const grows = Array.isArray(bounds) && bounds.every((bound, at) => at === 0 || bound > bounds[at - 1])
    if (!grows || bounds.length === 0)
      throw new InvalidArgumentError(`buckets.${name}`, 'must be a list of growing numbers, in seconds.')
    for (const bound of bounds) checkNumber(`buckets.${name}`, bound, { min: 0 })
  }
  return buckets
}

/** A client object that lacks a method is refused at the start, and not at the first event. */
export function checkMethods(argument: string, value: unknown, what: string, ...methods: string[]): void {
  const missing = methods.find((method) => typeof Object(value)[method] !== 'function')
  if (missing !== undefined)
    throw new InvalidArgumentError(argument, `must be ${what}: it has no ${missing}().`)
}
