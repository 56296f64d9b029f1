/**
 * The suite is played whole with one client library of each engine: `wholeRuns` in scripts/checks/claims.ts names them. With
 * the others, and through a pooler, the cases are played that touch the client. `npm run test:clients` plays all with all.
 */
export const otherClient: { readonly only?: 'client' } =
  process.env.HOLDFAST_TEST_CLIENTS === 'whole' ? {} : { only: 'client' }
