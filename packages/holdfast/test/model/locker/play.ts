/** Plays commands to a world of lockers, checking it after each. */
import assert from 'node:assert/strict'
import { sleep } from '../../../src/base/clock.ts'
import { defaultDriftMs } from '../../../src/base/defaults.ts'
import { isHoldfastError } from '../../../src/base/errors.ts'
import type { AcquireOptions, Lease, LeaseBase } from '../../../src/base/types.ts'
import type { Runs } from '../runs.ts'
import { type LockerCommand, locks, PERMITS, SEMAPHORE, ttls } from './commands.ts'
import type { Machine } from './machine.ts'
import { isLive, type LockerWorld, NAMESPACE } from './world.ts'

const acquireErrors = ['ACQUIRE_TIMEOUT', 'BACKEND_UNAVAILABLE', 'CLOSED']
const leaseErrors = ['LEASE_LOST', 'BACKEND_UNAVAILABLE', 'CLOSED']

export async function play(
  world: LockerWorld,
  commands: readonly LockerCommand[],
  runs?: Runs,
): Promise<void> {
  runs?.begin()
  for (const command of commands) {
    if (!(await perform(world, command))) continue
    runs?.count(command.do)
    await world.clock.settle()
    world.check()
  }
}

/** False if there is nothing that the command could refer to. */
async function perform(world: LockerWorld, command: LockerCommand): Promise<boolean> {
  if ('lease' in command) return performOnLease(world, command)
  switch (command.do) {
    case 'abort': {
      const waiting = [...world.pending].filter((call) => !call.caller.signal.aborted)
      const call = waiting[command.pending % Math.max(1, waiting.length)]
      call?.caller.abort(new Error('the caller has lost interest'))
      return call !== undefined
    }
    case 'delete':
      world.history.delete(NAMESPACE, lockOf(command.name))
      return true
    case 'advance':
      await world.clock.advance(command.ms)
      return true
    case 'blockAll':
      world.clock.block(command.ms)
      return true
    default:
      await performOnMachine(world, world.machine(command.machine), command)
      return true
  }
}

type OnMachine = Exclude<Extract<LockerCommand, { readonly machine: number }>, { readonly lease: number }>

async function performOnMachine(world: LockerWorld, machine: Machine, command: OnMachine): Promise<void> {
  const { locker, faults } = machine
  const caller = new AbortController()
  const ttlMs = 'ttl' in command ? ttlOf(command.ttl) : 0
  const follow = { what: command.do, caller, machine }
  switch (command.do) {
    case 'tryAcquire': {
      const options = holdOptions(command, caller)
      const hold = (lease: LeaseBase | null) => lease && world.hold(lease, ttlMs)
      return world.follow(follow, acquireErrors, () => locker.tryAcquire(lockOf(command.name), options), hold)
    }
    case 'acquire': {
      const options = { ...holdOptions(command, caller), waitMs: command.waitMs }
      const call = { ...follow, waitMs: command.waitMs }
      return world.follow(
        call,
        acquireErrors,
        () => locker.acquire(lockOf(command.name), options),
        (lease) => world.hold(lease, ttlMs),
      )
    }
    case 'acquirePermits': {
      const { waitMs, weight } = command
      const options = { ttlMs, waitMs, weight, capacity: PERMITS, signal: caller.signal }
      const call = { ...follow, waitMs }
      return world.follow(
        call,
        acquireErrors,
        () => locker.acquirePermits(SEMAPHORE, options),
        (permit) => world.hold(permit, ttlMs),
      )
    }
    case 'acquireAll': {
      const options = { ttlMs, waitMs: command.waitMs, signal: caller.signal }
      const call = { ...follow, waitMs: command.waitMs }
      return world.follow(
        call,
        acquireErrors,
        () => locker.acquireAll(locks, options),
        ({ leases }) => {
          for (const lease of leases) world.hold(lease, ttlMs)
        },
      )
    }
    case 'withLease':
      return withLease(world, machine, command, caller)
    case 'close':
      return world.follow({ ...follow, what: 'close' }, [], () => machine.restart(command.graceMs))
    case 'block':
    case 'suspend': {
      const wasFrozen = faults.isFrozen
      faults.freeze()
      if (command.do === 'suspend' && machine.maySleep) machine.clock.sleep()
      else machine.clock.stall()
      await world.clock.advance(command.ms)
      machine.clock.goOn()
      world.check()
      return wasFrozen ? undefined : faults.unfreeze()
    }
    case 'stepWall':
      return machine.clock.stepWall(machine.maySleep ? Math.abs(command.ms) : command.ms)
    case 'freeze':
      return faults.freeze()
    case 'unfreeze':
      return faults.unfreeze()
    case 'cutOff':
      return faults.cutOff()
    case 'restore':
      return faults.restore()
    case 'fault':
      return faults.next(command.call, command.fault)
    case 'squeeze':
      faults.next('keepAlive', { kind: 'late-reply', ms: command.ms })
      for (let lost = 0; lost < 8; lost++) faults.next('keepAlive', { kind: 'lost-request' })
      return
    case 'storm':
      return machine.storm(command.seed)
    case 'calm':
      return machine.calm()
  }
}

type OnLease = Extract<LockerCommand, { readonly lease: number }>

function performOnLease(world: LockerWorld, command: OnLease): boolean {
  const held = command.do === 'release' ? world.anyLease(command.lease) : world.lease(command.lease)
  if (held === undefined) return false
  const { lease } = held
  const caller = new AbortController()
  const { signal } = caller
  const follow = { what: command.do, caller }
  switch (command.do) {
    case 'release':
      if (command.impatient) caller.abort(new Error('the caller does not wait'))
      world.follow(follow, [], () => lease.release({ signal }))
      assert(!isLive(lease.state), 'G4 belief ends with the call of release')
      return true
    case 'renew':
      world.follow(follow, leaseErrors, () => lease.renew({ signal }))
      if (command.impatient) caller.abort(new Error('the caller does not wait'))
      return true
    case 'ensure': {
      const ms = command.share * (held.ttlMs - defaultDriftMs(held.ttlMs))
      // More than maxHoldMs leaves cannot be ensured.
      const errors = [...leaseErrors, 'INVALID_ARGUMENT']
      world.follow(
        follow,
        errors,
        () => lease.ensure(ms, { signal }),
        () => assert(lease.remainingMs >= ms, `${lease.remainingMs} ms remain, ensured were ${ms}`),
      )
      return true
    }
    case 'setData':
      world.follow(follow, leaseErrors, () => lease.setData(`left by ${lease.id}`, { signal }))
      return true
    case 'force': {
      const token = world.history.tokenOf(lease.name, lease.id)
      if (token === undefined) return false
      world.history.aimedAt.add(token)
      const { locker } = world.machine(command.machine)
      const options = { token, reason: 'in the way', signal }
      world.follow(follow, ['BACKEND_UNAVAILABLE', 'CLOSED'], () => locker.forceRelease(lease.name, options))
      return true
    }
  }
}

/** A body that stops when told to, or one that does not listen; whatever it does must come out (G11). */
function withLease(
  world: LockerWorld,
  machine: Machine,
  command: Extract<LockerCommand, { readonly do: 'withLease' }>,
  caller: AbortController,
): void {
  const failure = new Error('the body has failed')
  const result = Symbol('the result of the body')
  const listens = command.bodyMs % 2 === 0
  let wasLost = false
  const body = async (lease: Lease<'fenced'>) => {
    world.hold(lease, ttlOf(command.ttl))
    const { signal } = lease
    await sleep(machine.clock, command.bodyMs, listens ? { signal } : {}).catch(() => {})
    wasLost = lease.state === 'lost'
    if (command.fails) throw failure
    return result
  }
  const options = { ...holdOptions(command, caller), waitMs: command.waitMs }
  const run = async () => {
    try {
      const value = await machine.locker.withLease(lockOf(command.name), options, body)
      assert(value === result && !wasLost && !command.fails, 'G11 the outcome of the body')
    } catch (error) {
      if (isHoldfastError(error, 'LEASE_LOST')) {
        const expected = command.fails
          ? { status: 'rejected', reason: failure }
          : { status: 'fulfilled', value: result }
        assert.deepEqual(error.body, expected, 'G11 the outcome of the body is kept')
      }
      if (error === failure) assert(command.fails && !wasLost, 'G11 the failure of the body')
      throw error
    }
  }
  world.follow(
    { what: 'withLease', caller, machine, waitMs: command.waitMs },
    [...acquireErrors, 'LEASE_LOST'],
    run,
    undefined,
    failure,
  )
}

function holdOptions(
  command: Extract<LockerCommand, { readonly do: 'acquire' | 'tryAcquire' | 'withLease' }>,
  caller: AbortController,
): Omit<AcquireOptions, 'waitMs'> {
  const { mode, lockDelayMs, holdAtLeastMs, maxHoldMs } = command
  return { ttlMs: ttlOf(command.ttl), mode, lockDelayMs, holdAtLeastMs, maxHoldMs, signal: caller.signal }
}

function lockOf(number: number): string {
  return locks[number % locks.length] ?? locks[0]
}

function ttlOf(number: number): number {
  return ttls[number % ttls.length] ?? ttls[0]
}
