/**
 * Says which lease an operation is about where the recorder did not: a process that has at most one claim on a name at
 * a time means the one that it acquired last and has not released.
 */
import type { Operation } from './history.ts'

export function fillInLeases(operations: readonly Operation[]): readonly Operation[] {
  const claims = new Map<string, string[]>()
  return operations.map((operation) => {
    const { op } = operation
    if (op !== 'acquire' && op !== 'release' && op !== 'renew' && op !== 'abandon') return operation
    const key = JSON.stringify([operation.process, operation.name])
    const held = claims.get(key) ?? []
    claims.set(key, held)

    if (op === 'acquire') {
      const leaseId = operation.leaseId ?? `the lease of ${operation.id}`
      if (operation.outcome !== 'fail') held.push(leaseId)
      return { ...operation, leaseId }
    }
    const leaseId = operation.leaseId ?? held.at(-1)
    if (leaseId === undefined) return operation
    if (op !== 'renew' && operation.outcome === 'ok' && held.includes(leaseId))
      held.splice(held.lastIndexOf(leaseId), 1)
    return { ...operation, leaseId }
  })
}
