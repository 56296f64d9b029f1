/** Bugs of the schedule recipe, one for each of its promises. */
import { library, type SourceBug } from '../bug.ts'

const recipe = `${library}/recipes/schedule`
const tests = 'recipes/schedule.test.ts'

export const scheduleBugs: readonly SourceBug[] = [
  {
    id: 'schedule-record-after',
    what: 'the start of a tick is recorded after the job, and not before it',
    edits: [
      {
        file: `${recipe}/runner.ts`,
        find: '    await lease.setData(formatRecord(started))\n',
        replaceBy: '',
      },
      {
        file: `${recipe}/runner.ts`,
        find: '    const isDone = await this.#run(lease, started)\n',
        replaceBy:
          '    const isDone = await this.#run(lease, started)\n    await lease.setData(formatRecord(started))\n',
      },
    ],
    foundBy: { units: { file: tests, name: 'schedule-start-recorded' } },
  },
  {
    id: 'schedule-same-tick',
    what: 'the tick in the record may start again',
    edits: [
      {
        file: `${recipe}/decide.ts`,
        find: 'if (tick <= record.tick) return []',
        replaceBy: 'if (tick < record.tick) return []',
      },
    ],
    foundBy: { units: { file: tests, name: 'schedule-start-recorded' } },
  },
  {
    id: 'schedule-unconfirmed',
    what: 'the job runs although it is not known whether its start was recorded',
    edits: [
      {
        file: `${recipe}/runner.ts`,
        find: 'await lease.setData(formatRecord(started))',
        replaceBy: 'await lease.setData(formatRecord(started)).catch(() => {})',
      },
    ],
    foundBy: { units: { file: tests, name: 'schedule-unconfirmed-start' } },
  },
  {
    id: 'schedule-unlimited',
    what: 'a tick that kills its runners is started again for ever',
    edits: [
      {
        file: `${recipe}/decide.ts`,
        find: "    if (starts >= rules.maxStarts) return { kind: 'set-aside', record }\n",
        replaceBy: '',
      },
    ],
    foundBy: { units: { file: tests, name: 'schedule-starts-limited' } },
  },
  {
    id: 'schedule-blind-stand-by',
    what: 'the stand-by starts the tick without reading that it is done',
    edits: [
      {
        file: `${recipe}/runner.ts`,
        find: 'const record = parseRecord(name, lease.previousData)',
        replaceBy: 'const record = standsBy ? undefined : parseRecord(name, lease.previousData)',
      },
    ],
    foundBy: { units: { file: tests, name: 'schedule-one-stand-by' } },
  },
  {
    id: 'schedule-skips-unfinished',
    what: 'with rerun, a tick whose runner died is not started again',
    edits: [
      {
        file: `${recipe}/decide.ts`,
        find: "(state === 'started' || state === 'failed')",
        replaceBy: "state === 'failed'",
      },
    ],
    foundBy: { units: { file: tests, name: 'schedule-rerun' } },
  },
  {
    id: 'schedule-done-lost',
    what: 'a tick that is done starts again because one write of it failed',
    edits: [
      {
        file: `${recipe}/runner.ts`,
        find: "if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE') || this.#stop.signal.aborted) throw error",
        replaceBy: 'throw error',
      },
    ],
    foundBy: { units: { file: tests, name: 'schedule-done-is-kept' } },
  },
  {
    id: 'T97-since-before-wait',
    what: 'a run begins when its replica asks for the lease: ticks of an outage are taken for overruns',
    edits: [
      {
        file: `${recipe}/runner.ts`,
        find: '    const { name, standsBy } = this.#terms\n',
        replaceBy: '    const { name, standsBy } = this.#terms\n    const askedMs = this.#nowMs\n',
      },
      {
        file: `${recipe}/runner.ts`,
        find: 'const run = { since: this.#nowMs,',
        replaceBy: 'const run = { since: askedMs,',
      },
    ],
    foundBy: {
      simulation: { seeds: 60, rule: 'T97', focus: { workload: 'schedules' } },
      units: { file: tests, name: 'after an outage of several ticks' },
    },
  },
  {
    id: 'T53-schedule',
    what: 'closing a schedule does not wait for its job',
    edits: [
      {
        file: `${recipe}/runner.ts`,
        find: '    await Promise.all(this.#running)\n',
        replaceBy: '',
      },
    ],
    foundBy: { units: { file: tests, name: 'T53' } },
  },
]
