/** The cases themselves are shown by the engines: a cluster cannot be played in one process. */
import { expect, test } from 'vitest'
import { type ClusterWorld, clusterCases, describeCluster } from './describe-cluster.ts'

test('no rule is given twice', () => {
  const rules = clusterCases().map(({ rule }) => rule)
  expect(new Set(rules).size).toBe(rules.length)
})

test('each case is played in a world of its own, which is closed also after a failure', async () => {
  const bodies: (() => Promise<void>)[] = []
  let open = 0
  const world = { close: async () => void open-- } as Partial<ClusterWorld> as ClusterWorld
  const fails = { rule: 'M0', title: 'it fails', topic: 'a topic', needs: [] }
  describeCluster({
    name: 'acme',
    describe: (_, body) => body(),
    test: (_, body) => bodies.push(body),
    createWorld: async () => {
      open++
      return world
    },
    cases: [{ ...fails, run: () => Promise.reject(new Error('broken')) }],
  })
  await expect(bodies[0]?.()).rejects.toThrow('broken')
  expect([bodies.length, open]).toEqual([1, 0])
})

test('cases that need what is lacking are not played, and the report says so', () => {
  const played = (lacks: readonly ('partitions' | 'watch')[]) => {
    const names: string[] = []
    describeCluster({
      name: 'acme',
      describe: (name, body) => {
        names.push(name)
        body()
      },
      test: (name) => names.push(name),
      createWorld: () => Promise.reject(new Error('nothing is played')),
      lacks,
    })
    return names
  }
  const [whole, some] = [played([]), played(['partitions', 'watch'])]
  expect(whole[0]).toBe('acme clusters')
  expect(some[0]).toBe('acme clusters, without partitions, watch')
  const left = whole.slice(1).filter((name) => !some.includes(name))
  expect(left.map((name) => name.split(' ')[0])).toEqual(['M10', 'M14', 'M17'])
})
