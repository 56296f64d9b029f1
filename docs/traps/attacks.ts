import type { TrapSection } from '../../scripts/docs/trap-types.ts'

const noOutcomes = { reason: 'outcomes are stored by `idempotent` alone, on SQLite and PostgreSQL' }
const noFunctions = { reason: 'only PostgreSQL has functions with the rights of their owner' }

export const attacks: TrapSection = {
  title: 'Found by attacking the public API',
  traps: [
    {
      id: 'T79',
      title:
        'An outcome that was stored in a transaction is reported although the transaction was rolled back',
      core: noOutcomes,
      memory: noOutcomes,
      sqlite: {
        test: 'T79 a result whose COMMIT failed is reported to no caller, also if the work catches the failure',
      },
      redis: noOutcomes,
      redlock: noOutcomes,
      postgres: {
        test: 'T79 a result whose COMMIT failed is reported to no caller, also if the work catches the failure',
      },
      'postgres-advisory': noOutcomes,
      later: noOutcomes,
    },
    {
      id: 'T80',
      title:
        'A SECURITY DEFINER function that PUBLIC may execute: a stranger raises the mark of a guard and locks everybody out',
      core: noFunctions,
      memory: noFunctions,
      sqlite: noFunctions,
      redis: noFunctions,
      redlock: noFunctions,
      postgres: {
        test: 'T80 a role with USAGE alone cannot raise a mark of the guard through a table of its own',
      },
      'postgres-advisory': {
        reason: 'its functions have the rights of the caller; the test for postgres looks at those as well',
      },
      later: noFunctions,
    },
  ],
}
