/**
 * Finds deadlocks in the states of names: tasks that wait for each other, so that none can go on.
 *
 * A task that does not wait ends some day, and releases what it holds; then the waiters that fit are granted, in order. This is
 * simulated until nothing changes. The tasks that are left are stuck for good, and among them there is a cycle. (With
 * permits a cycle alone proves nothing: another holder may release enough.)
 */
import { InvalidArgumentError } from '../../base/errors.ts'
import type { NameState } from '../../base/types.ts'

/** A task in a deadlock. It waits for the next one of the list, and the last one for the first. */
export interface DeadlockedTask {
  readonly holder: string
  /** Absent for a waiter without an owner that stands in the queue before others. */
  readonly owner?: string
  readonly waitsFor: string
  readonly waitingForMs: number
  /** Whether the next task holds that name, or is before this one in its queue. */
  readonly behind: 'holder' | 'waiter'
}

export interface Deadlock {
  readonly tasks: readonly DeadlockedTask[]
}

type ClaimState = NameState['holders'][number] | NameState['waiters'][number]

interface Task {
  readonly holder: string
  readonly owner: string | undefined
  readonly waits: Wait[]
}

interface Wait {
  readonly task: Task
  readonly name: Name
  readonly weight: number
  readonly waitingForMs: number
  readonly before: Wait | undefined
  isGranted: boolean
}

interface Name {
  readonly name: string
  readonly capacity: number
  holders: { readonly task: Task; readonly weight: number }[]
  readonly queue: readonly Wait[]
}

/** More than all readers of a name. */
const LOCK = Number.MAX_SAFE_INTEGER

/**
 * The deadlocks in what `locker.list()` shows, each once. Tasks are told apart by holder and `owner`. A holder without an owner may
 * be any task of its process, so it is taken for one that goes on: deadlocks through it are not found.
 */
export function findDeadlocks(states: readonly NameState[]): readonly Deadlock[] {
  if (!Array.isArray(states))
    throw new InvalidArgumentError('states', 'must be a list, as locker.list() returns it.')
  const { names, tasks } = read(states)
  while (names.map(proceed).includes(true));
  const deadlocks: Deadlock[] = []
  const visited = new Set<Task>()
  for (const start of tasks) {
    const way: Step[] = []
    let task: Task | undefined = start
    for (; task !== undefined && !visited.has(task); task = way.at(-1)?.next) {
      visited.add(task)
      const step = stepFrom(task)
      if (step === undefined) break
      way.push(step)
    }
    // It came back to a task of this very way.
    const first = way.findIndex(({ wait }) => wait.task === task)
    if (first >= 0) deadlocks.push({ tasks: way.slice(first).map(shown) })
  }
  return deadlocks
}

function read(states: readonly NameState[]): { names: readonly Name[]; tasks: ReadonlySet<Task> } {
  const byOwner = new Map<string, Task>()
  const tasks = new Set<Task>()
  const taskOf = ({ holder, owner }: ClaimState): Task => {
    const key = JSON.stringify([holder, owner])
    const task: Task = (owner === undefined ? undefined : byOwner.get(key)) ?? { holder, owner, waits: [] }
    if (owner !== undefined) byOwner.set(key, task)
    tasks.add(task)
    return task
  }
  const names = states.map((state): Name => {
    const weightOf = ({ mode, weight = 1 }: ClaimState) => (mode === 'exclusive' ? LOCK : weight)
    const holders = state.holders.map((claim) => ({ task: taskOf(claim), weight: weightOf(claim) }))
    const queue: Wait[] = []
    const name: Name = { name: state.name, capacity: state.capacity ?? LOCK, holders, queue }
    for (const claim of state.waiters) {
      const { waitingForMs } = claim
      const task = taskOf(claim)
      const weight = weightOf(claim)
      const wait: Wait = { task, name, weight, waitingForMs, before: queue.at(-1), isGranted: false }
      queue.push(wait)
      task.waits.push(wait)
    }
    return name
  })
  return { names, tasks }
}

const isStuck = ({ waits }: Task) => waits.some(({ isGranted }) => !isGranted)

/** Releases what tasks hold that can go on, and grants the queue as far as it fits. True if something has changed. */
function proceed(name: Name): boolean {
  const before = name.holders.length
  name.holders = name.holders.filter(({ task }) => isStuck(task))
  let hasChanged = name.holders.length < before
  let used = name.holders.reduce((sum, { weight }) => sum + weight, 0)
  for (const wait of name.queue) {
    if (wait.isGranted) continue
    if (wait.weight > name.capacity - used) break
    wait.isGranted = true
    hasChanged = true
    if (!isStuck(wait.task)) continue
    name.holders.push(wait)
    used += wait.weight
  }
  return hasChanged
}

/** A stuck task waits for the next one. */
interface Step {
  readonly wait: Wait
  readonly next: Task
  readonly behind: 'holder' | 'waiter'
}

/** One of the tasks that keep a stuck one from going on. Following one for each is enough to find a cycle in every deadlock. */
function stepFrom({ waits }: Task): Step | undefined {
  const wait = waits.find(({ isGranted }) => !isGranted)
  if (wait === undefined) return undefined
  const { name, weight, before } = wait
  // Readers do not keep readers out.
  const keepsOut = (held: number) => name.capacity < LOCK || weight === LOCK || held === LOCK
  const holder = name.holders.find(({ weight }) => keepsOut(weight))
  if (holder !== undefined) return { wait, next: holder.task, behind: 'holder' }
  if (before === undefined || before.isGranted) return undefined
  return { wait, next: before.task, behind: 'waiter' }
}

function shown({ wait, behind }: Step): DeadlockedTask {
  const { task, name, waitingForMs } = wait
  const { holder, owner } = task
  return { holder, ...(owner !== undefined && { owner }), waitsFor: name.name, waitingForMs, behind }
}
