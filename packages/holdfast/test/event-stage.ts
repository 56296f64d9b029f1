/** Two clients and an engine, for tests that look at what is reported. */
import assert from 'node:assert/strict'
import { onTestFinished } from 'vitest'
import { type EventKind, eventKinds, type HoldfastEvents, onEvent } from '../src/base/events.ts'
import type { CallKind, PlannedCall } from '../src/testing/faults.ts'
import { faultyBackend } from '../src/testing/faulty-backend.ts'
import { tableRows } from './markdown-table.ts'
import { createRig } from './rig.ts'

export const kinds = eventKinds

/** The fields of each kind, as docs/reference/events.md has them. */
export const documentedFields = new Map(
  tableRows('events.md', 'Events').map(({ kind, fields = '' }) => [kind, fields.split(', ')]),
)

/**
 * Each stage has two clients, `ours` and `other`; calls of `ours` whose kind is in `failing` fail. What `ours`
 * reports is collected, and every event must have exactly the fields that are documented.
 */
export function createEventStage() {
  const emitted = new Set<EventKind>()
  let stages = 0

  function setStage() {
    const rig = createRig()
    const failing = new Set<CallKind>()
    const holder = `ours-${++stages}`
    const plan = ({ kind }: PlannedCall) =>
      failing.has(kind) ? ({ kind: 'error-before', error: new Error(`${kind} failed`) } as const) : null
    const ours = rig.locker({
      holder,
      dropsLeases: true,
      wrap: (backend) => faultyBackend(backend, { plan }),
    })
    const other = rig.locker({ holder: 'other' })

    const seen: { kind: EventKind; event: object }[] = []
    for (const kind of kinds) {
      const stop = onEvent(kind, (event) => {
        if ('holder' in event && event.holder !== holder) return
        seen.push({ kind, event })
        emitted.add(kind)
      })
      onTestFinished(stop)
    }
    onTestFinished(() => {
      for (const { kind, event } of seen) {
        // One with a question mark may be absent.
        const present = (documentedFields.get(kind) ?? [])
          .map((field) => field.replace('?', ''))
          .filter((field, index) => field in event || !documentedFields.get(kind)?.[index]?.endsWith('?'))
        assert.deepEqual(Object.keys(event).sort(), present.sort(), kind)
      }
    })
    const eventsOf = <K extends EventKind>(kind: K) =>
      seen.filter((each) => each.kind === kind).map((each) => each.event as HoldfastEvents[K])
    const one = <K extends EventKind>(kind: K): HoldfastEvents[K] => {
      const [event, ...more] = eventsOf(kind)
      const heard = seen.map((each) => each.kind).join(', ')
      assert.ok(event !== undefined && more.length === 0, `one ${kind} expected among: ${heard}`)
      return event
    }
    const about = { backend: 'memory', namespace: 'default', name: 'n', holder }
    return { ...rig, ours, other, failing, eventsOf, one, about }
  }
  return Object.assign(setStage, { emitted })
}
