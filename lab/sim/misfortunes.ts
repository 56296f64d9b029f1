/** Makes the faults of a plan happen to the parts of the world that they are for. */
import { type Fault, faultsEndMs } from './faults.ts'
import type { World } from './world.ts'

type Crash = Extract<Fault, { kind: 'crash-engine' | 'crash-resource' }>
type OfMachine = Extract<Fault, { kind: 'pause' | 'suspend' | 'block' | 'wall-step' | 'crash-client' }>

export function happen(world: World, fault: Fault): void {
  const whom = 'client' in fault ? `c${fault.client} ` : ''
  world.note('fault', fault.kind, `${whom}for ${fault.forMs}`)
  switch (fault.kind) {
    case 'partition':
    case 'loss':
    case 'delay':
    case 'duplicate':
    case 'lost-pushes':
    case 'late-write':
      world.network.begin(fault)
      break
    case 'crash-engine':
    case 'crash-resource':
      crash(world, fault)
      break
    case 'freeze-engine':
      world.count(`fault ${fault.kind}`)
      world.engine.freezeEngine(fault.forMs)
      break
    case 'force-release':
    case 'delete-name':
    case 'early-expiry':
      actOnEngine(world, fault)
      break
    default:
      happenToMachine(world, fault)
  }
}

function crash(world: World, fault: Crash): void {
  const server = fault.kind === 'crash-engine' ? world.engine : world.resource
  const goDown = () => {
    // One that waits for its moment must not come after the others have ended.
    if (world.nowMs >= faultsEndMs(world.settings) || world.isStopping) return
    world.count(`fault ${fault.kind}`)
    world.note('fault', `${fault.kind} happens`)
    server.crashFor(fault.forMs)
  }
  if (fault.inTheAct) server.onNextAct(goDown)
  else goDown()
}

/** An operator's act, or the engine's own mistake: counted only if a claim was hit. */
function actOnEngine(
  world: World,
  fault: Extract<Fault, { kind: 'force-release' | 'delete-name' | 'early-expiry' }>,
): void {
  if (world.engine.isDown || world.engine.isFrozen) return
  const hit = world.engine.act((engine, nowMs) => {
    if (fault.kind === 'early-expiry') return engine.expireEarly(`c${fault.client}x`, nowMs)
    if (fault.kind === 'delete-name') return engine.deleteName(fault.name, nowMs)
    return engine.forceRelease(fault.name, null, nowMs)
  })
  if (hit > 0) world.count(`fault ${fault.kind}`)
}

function happenToMachine(world: World, fault: OfMachine): void {
  const client = world.clients[fault.client]
  if (client === undefined) return
  world.count(`fault ${fault.kind}`)
  if (fault.kind === 'wall-step') client.machine.stepWall(fault.byMs)
  else if (fault.kind === 'crash-client') client.crash(fault.forMs)
  else if (fault.kind === 'pause') client.machine.stop('paused', fault.forMs)
  else if (fault.kind === 'suspend') client.machine.stop('suspended', fault.forMs)
  // The code that blocked goes on before any timer can tell it anything (T8, blocked event loops).
  else client.machine.stop('blocked', fault.forMs, () => world.checks.askAllOf(client.process))
}
