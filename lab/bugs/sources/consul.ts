/** Bugs of the protocol on Consul, each of which a lock library on Consul has had, or nearly had. Real servers show most of them. */
import { library, type SourceBug } from '../bug.ts'

const file = `${library}/engines/consul/locks/store.ts`
const connection = `${library}/engines/consul/locks/connection.ts`
const noticedBy = (name: string, test = '../test/conformance/consul-store.test.ts') => ({
  units: { file: test, name, on: 'consul' as const },
})

export const consulBugs: readonly SourceBug[] = [
  {
    id: 'G3-consul-attached',
    what: 'the first keep-alive of an attached session counts, although a leader that was replaced may have confirmed it',
    edits: [
      {
        file,
        find: 'if (this.#provenAt !== null && elapsedUntil(since, this.#provenAt) <= this.#session.record.ttlMs)',
        replaceBy: 'if (found !== null)',
      },
    ],
    foundBy: {
      units: {
        file: 'engines/consul/locks/prolonging.test.ts',
        name: 'of an attached session takes two rounds',
      },
    },
  },
  {
    id: 'G3-consul-no-read',
    what: 'a renewal counts without a linearizable read after it, although a leader that was replaced may have confirmed it',
    edits: [
      {
        file,
        find: 'const { entries, member } = await this.#connection.read(own, call)',
        replaceBy:
          'const [{ length }, member] = [own, renewedBy as consul.Member]; const entries = [{ key, session: id, value: "", created: 1n, modified: BigInt(length) }]',
      },
    ],
    foundBy: {
      units: { file: 'engines/consul/locks/prolonging.test.ts', name: 'one renewal and one read' },
    },
    note: 'Together with G3-consul-attached, T88 of belief.test.ts fails on three real servers in two of five runs.',
  },
  {
    id: 'G3-consul-unverified-read',
    what: 'the read after a renewal is not linearizable, so a leader that was replaced may answer both',
    edits: [
      {
        file: connection,
        find: 'transact(trees, call, { isConsistent: true })',
        replaceBy: 'transact(trees, call)',
      },
    ],
    foundBy: {
      units: { file: 'engines/consul/locks/prolonging.test.ts', name: 'one renewal and one read' },
    },
  },
  {
    id: 'G2-consul-token-at-enqueue',
    what: 'the token of a waiter is the index at which it began to wait',
    edits: [
      {
        file,
        find: 'tokens.token(written.modified, position)',
        replaceBy: 'tokens.token(written.created, position)',
      },
    ],
    foundBy: noticedBy('S9'),
  },
  {
    id: 'T73-consul-no-mark',
    what: 'an abandon leaves no mark, so a late join makes a claim that nobody knows',
    edits: [
      {
        file,
        find: 'await this.#connection.commit(claim.name, () => [mark], call)',
        replaceBy: 'await this.#connection.commit(claim.name, () => [consul.remove(mark.KV.Key)], call)',
      },
    ],
    foundBy: noticedBy('S6'),
  },
  {
    id: 'T84-consul-confirm-without-index',
    what: 'a confirm does not compare the index of its key, so it grants a key that was made later',
    edits: [
      {
        file,
        find: 'consul.cas(own, this.#value(request, placeIn(order), position), indexOf(order))',
        replaceBy: 'consul.lock(own, this.#value(request, placeIn(order), position), id)',
      },
    ],
    foundBy: noticedBy('S11'),
  },
  {
    id: 'G1-consul-not-first',
    what: 'a claim is granted by its creation, although an older one is in its way',
    edits: [
      {
        file,
        find: 'stored.capacity === capacity && isEligible(stored.queue(claim, capacity))',
        replaceBy: 'stored.capacity === capacity',
      },
    ],
    foundBy: noticedBy('S1'),
  },
  {
    id: 'G1-consul-capacity',
    what: 'permits are granted by a capacity that has been changed since it was seen',
    edits: [{ file, find: "mode === 'permits' ? this.#sameCapacity(name, seen) : []", replaceBy: '[]' }],
    foundBy: noticedBy('S36'),
  },
  {
    id: 'G7-consul-release-by-attempt',
    what: 'a release ends the claim of its attempt, whichever grant that is',
    edits: [{ file, find: 'consul.unchanged(this.#key(claim), BigInt(grant.version)),', replaceBy: '' }],
    foundBy: noticedBy('S14'),
  },
  {
    id: 'T23-consul-tombstones',
    what: 'a grant does not ask Consul whether the lock-delay of the last holder is over',
    edits: [{ file, find: '...tombstones.flatMap((key) => takingAway(key, id)),', replaceBy: '' }],
    foundBy: noticedBy('T23 more tombstones', 'engines/consul/locks/queue.test.ts'),
  },
]
