/** Bugs of the recipe for partitions: one for each of its promises. */
import { library, type SourceBug } from '../bug.ts'

const folder = `${library}/recipes/partitions`
const inSimulation = { workload: 'partitions' } as const

export const partitionsBugs: readonly SourceBug[] = [
  {
    id: 'T53-partition',
    what: 'a partition is given away before the work on it has stopped',
    edits: [
      {
        file: `${folder}/assignments.ts`,
        find: '      await this.#call(partition, () => onRevoked(',
        replaceBy: '      void this.#call(partition, () => onRevoked(',
      },
    ],
    foundBy: { simulation: { seeds: 20, rule: 'T53', focus: inSimulation } },
  },
  {
    id: 'G1-partition-shared',
    what: 'two members that try the same partition both get it',
    edits: [
      {
        file: `${folder}/membership.ts`,
        find: '{ ...this.#holdOptions, owner: member.id }',
        replaceBy: "{ ...this.#holdOptions, owner: member.id, mode: 'shared' as const }",
      },
    ],
    // The guard or the workload itself notices it first, as the seed will have it.
    foundBy: { simulation: { seeds: 60, focus: inSimulation } },
  },
  {
    id: 'G10-dead-member',
    what: 'a dead member keeps its share of the partitions',
    edits: [
      {
        file: `${folder}/picture.ts`,
        find: '    if (name === names.member)\n',
        replaceBy:
          '    if (name === names.member) for (const dead of graves) members.push(dead)\n' +
          '    if (name === names.member)\n',
      },
      {
        file: `${folder}/picture.ts`,
        find: 'export interface Listed {\n',
        replaceBy:
          "const graves: Member[] = [{ id: 'c9', label: 'dead', weight: 1 }]\n\nexport interface Listed {\n",
      },
    ],
    note: 'one member that has died before all others came',
    foundBy: {
      simulation: { seeds: 20, rule: 'G10', focus: { ...inSimulation, mode: 'liveness', faults: [] } },
    },
  },
  {
    id: 'G10-partitions-moves',
    what: 'the larger shares go by the members’ ids and not to those that hold more: partitions move for nothing',
    edits: [
      {
        file: `${folder}/quotas.ts`,
        find: 'Number(keeps > floor)',
        replaceBy: 'Number(keeps > floor && floor < 0)',
      },
    ],
    foundBy: { units: { file: 'recipes/partitions/quotas.test.ts', name: 'moves' } },
  },
]
