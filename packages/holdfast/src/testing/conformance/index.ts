/** All cases, by topic. */
import { abandoningCases } from './abandoning.ts'
import { attachingCases } from './attaching.ts'
import type { BackendCase } from './case.ts'
import { closedNameCases } from './closed-names.ts'
import { dataCases } from './data.ts'
import { exclusiveCases } from './exclusive.ts'
import { expiryCases } from './expiry.ts'
import { infoCases } from './info.ts'
import { inspectingCases } from './inspecting.ts'
import { leavingCases } from './leaving.ts'
import { lockerCases } from './locker.ts'
import { lockerEndCases } from './locker-ends.ts'
import { losingCases } from './losing.ts'
import { manyWaitersCases } from './many-waiters.ts'
import { nameCases } from './names.ts'
import { pagingCases } from './paging.ts'
import { queueCases } from './queue.ts'
import { releasingCases } from './releasing.ts'
import { semaphoreCases } from './semaphores.ts'
import { sessionCases } from './sessions.ts'
import { sharedCases } from './shared.ts'
import { tokenCases } from './tokens.ts'
import { waiterCases } from './waiters.ts'
import { watchingCases } from './watching.ts'
import { workloadCases } from './workload.ts'

/** Every rule that a backend keeps. New ones get the next number; a number is never given to another. */
export function backendCases(): readonly BackendCase[] {
  return [
    infoCases,
    sessionCases,
    attachingCases,
    exclusiveCases,
    releasingCases,
    tokenCases,
    expiryCases,
    queueCases,
    waiterCases,
    manyWaitersCases,
    abandoningCases,
    sharedCases,
    semaphoreCases,
    closedNameCases,
    dataCases,
    losingCases,
    inspectingCases,
    nameCases,
    pagingCases,
    leavingCases,
    watchingCases,
    workloadCases,
    lockerCases,
    lockerEndCases,
  ].flat()
}
