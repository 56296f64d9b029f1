/** Bugs of guards whose storage has no transactions. */
import { library, type SourceBug } from '../bug.ts'

const visit = `${library}/guards/object/visit.ts`
const inSchedules = { units: { file: 'guards/object/schedules.test.ts', name: 'T40' } }

export const guardBugs: readonly SourceBug[] = [
  {
    id: 'T93-head-without-nonce',
    what: 'a head has no nonce: a holder takes the head of another for its own, and ETags may repeat',
    edits: [{ file: visit, find: 'const nonce = this.#terms.random.id()', replaceBy: "const nonce = ''" }],
    foundBy: inSchedules,
  },
  {
    id: 'T93-data-in-place',
    what: 'all writers write the data under one key, before the head: an older write comes after a newer mark',
    edits: [
      {
        file: visit,
        find: 'dataKey(this.key, this.#token, id)',
        replaceBy: "dataKey(this.key, 0n, 'data')",
      },
    ],
    foundBy: inSchedules,
  },
  {
    id: 'T40-object-reads',
    what: 'a read of an object looks at the mark and does not raise it',
    edits: [
      {
        file: visit,
        find: '    for (;;) {\n      await this.raise()',
        replaceBy: '    for (;;) {\n      this.judge()',
      },
    ],
    foundBy: inSchedules,
  },
  {
    id: 'G5-collected-head',
    what: 'collect takes whatever lies below an object for data, also the head of another name, which then accepts older holders',
    edits: [
      {
        file: `${library}/guards/object/store-guard.ts`,
        find: 'const dataName = /^(\\d+)-[\\w-]{22}$/',
        replaceBy: 'const dataName = /^(\\d+)-[^/]+$/',
      },
    ],
    foundBy: { units: { file: 'guards/object/collect.test.ts', name: 'G5' } },
  },
]
