/** Faults of calls after the end of their client, of cancelled calls, of limits of waiting, and of a diagnosis. */
import { callWith } from '../../../packages/holdfast/src/base/aborting.ts'
import { isHoldfastError } from '../../../packages/holdfast/src/base/errors.ts'
import { throwIfCancelled } from '../../../packages/holdfast/src/kit/backend-kit.ts'
import type { Finding } from '../../../packages/holdfast/src/spi.ts'
import { replace } from '../../../packages/holdfast/src/testing/conformance/wrapping.ts'
import { queueOf } from '../../../packages/holdfast/test/conformance/changing.ts'
import type { BackendBug } from '../bug.ts'
import { broken, brokenBackend, brokenSession } from './broken.ts'

const backendCalls = [
  'openSession',
  'attachSession',
  'inspect',
  'list',
  'sessions',
  'check',
  'forceRelease',
  'resize',
  'forget',
] as const
const sessionCalls = ['keepAlive', 'tryAcquire', 'enqueue', 'abandon', 'setData', 'release', 'close'] as const

type Run = (...args: unknown[]) => Promise<unknown>

/** The call answers, where the client should refuse it because it has ended. */
function answersWhenClosed(inner: object, name: string): { readonly [name: string]: Run } {
  const run: Run = async (...args) => {
    try {
      return await (Reflect.get(inner, name) as Run)(...args)
    } catch (error) {
      if (!isHoldfastError(error, 'CLOSED')) throw error
      return undefined
    }
  }
  return { [name]: run }
}

const refusesWhenCancelled: Run = async (...args) => {
  throwIfCancelled('memory', args.at(-1) as ReturnType<typeof callWith>)
  return []
}

export const endingBugs: readonly BackendBug[] = [
  ...backendCalls.map((name) =>
    brokenBackend(`${name} answers after the end`, 'C177', (inner) => answersWhenClosed(inner, name)),
  ),
  ...sessionCalls.map((name) =>
    brokenSession(`${name} answers after the end`, 'C177', (inner) => answersWhenClosed(inner, name)),
  ),
  brokenBackend('diagnose answers after the end', 'C177', () => ({ diagnose: async () => [] })),
  brokenBackend('watch ends quietly after the end', 'C177 C186', (inner) => ({
    async *watch(prefix, options, call) {
      try {
        yield* inner.watch?.(prefix, options, call) ?? []
      } catch {}
    },
  })),
  ...(['sessions', 'check', 'diagnose'] as const).map((name) =>
    broken(`${name} ignores that its call was cancelled`, 'C175', () => (backend) => {
      const whole = replace(backend, {
        backend: () => ({ diagnose: refusesWhenCancelled as () => Promise<Finding[]> }),
      })
      return replace(whole, {
        backend: (inner) => ({
          [name]: (...args: unknown[]) => (Reflect.get(inner, name) as Run)(...args.slice(0, -1), callWith()),
        }),
      })
    }),
  ),
  brokenBackend('a watch that is cancelled rejects', 'C184 C186', (inner) => ({
    async *watch(prefix, options, call) {
      yield* inner.watch?.(prefix, options, call) ?? []
      throw new Error('cancelled')
    },
  })),
  ...['nonsense', [{ code: 'HOLDFAST_X', severity: 'bad', what: 'w', why: 'y', fix: 'f' }], [{}]].map(
    (said) =>
      brokenBackend(`a diagnosis is ${JSON.stringify(said)}`, 'C242', () => ({
        diagnose: async () => said as readonly Finding[],
      })),
  ),
  brokenSession('a waiter is taken off when half of its time is over', 'C243', (inner, { clock }) => ({
    enqueue(request, call) {
      const leave = () => void inner.abandon(request, callWith()).catch(() => {})
      if (request.waitMs !== undefined) clock.setTimer(request.waitMs / 2, leave)
      return queueOf(inner)(request, call)
    },
  })),
]
