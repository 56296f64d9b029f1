/** Bugs of the protocol on etcd, each of which a lock library on etcd has had, or nearly had. */
import { library, type SourceBug } from '../bug.ts'

const etcd = `${library}/engines/etcd/locks`
const noticedBy = (name: `G${number}`) => ({ units: { file: 'engines/etcd/locks/protocol.test.ts', name } })

export const etcdBugs: readonly SourceBug[] = [
  {
    id: 'G2-etcd-token-at-enqueue',
    what: 'the token of a waiter is the revision at which it began to wait',
    edits: [
      {
        file: `${etcd}/store.ts`,
        find: 'committed.found.name : granted(request.mode, committed)',
        replaceBy: 'committed.found.name : granted(request.mode, { ...committed, revision: own })',
      },
    ],
    foundBy: noticedBy('G2'),
  },
  {
    id: 'G1-etcd-predecessor-gone',
    what: 'a waiter takes the end of its predecessor for its own turn, although a waiter in the middle may have cancelled',
    edits: [
      {
        file: `${etcd}/store.ts`,
        find: 'etcd.onCondition([...same, isEligible], grant, otherwise)',
        replaceBy: 'etcd.onCondition(same, grant, otherwise)',
      },
    ],
    foundBy: noticedBy('G1'),
  },
  {
    id: 'G1-etcd-own-key',
    what: 'a waiter is granted without a look at its own key, which may have gone while it waited',
    edits: [
      {
        file: `${etcd}/store.ts`,
        find: 'const same = [etcd.created(own, order), ...waits(own, attempt), isOpen]',
        replaceBy: 'const same = [isOpen]',
      },
    ],
    foundBy: noticedBy('G1'),
  },
  {
    id: 'G3-etcd-old-leader',
    what: 'a keep-alive counts although the leader that answered it may have been replaced',
    edits: [
      {
        file: `${library}/engines/etcd/client/leases.ts`,
        find: ' && response.header?.raft_term === kept.header?.raft_term',
        replaceBy: '',
      },
    ],
    foundBy: noticedBy('G3'),
  },
  {
    id: 'G3-etcd-local-read',
    what: 'the transaction after a keep-alive reads nothing, so that a replaced leader answers it by itself',
    edits: [
      {
        file: `${etcd}/store.ts`,
        find: '[this.#keys.session(lease), ...held.map((claim) => this.#keyOf(claim))]',
        replaceBy: 'held.map((claim) => this.#keyOf(claim))',
      },
    ],
    foundBy: noticedBy('G3'),
  },
  {
    id: 'G7-etcd-release-by-attempt',
    what: 'a release deletes the key of its attempt, whichever grant that is',
    edits: [
      {
        file: `${etcd}/store.ts`,
        find: 'etcd.onCondition([etcd.written(own, grant.revision)], [etcd.remove(own), ...closing])',
        replaceBy: 'etcd.onCondition([], [etcd.remove(own), ...closing])',
      },
    ],
    foundBy: noticedBy('G7'),
  },
  {
    id: 'G7-etcd-abandon-by-key',
    what: 'an abandon deletes the key that its attempt had, although another attempt may have it now',
    edits: [
      {
        file: `${etcd}/store.ts`,
        find: 'etcd.onCondition(isOf(own, attempt), [etcd.remove(own)])',
        replaceBy: 'etcd.onCondition([], [etcd.remove(own)])',
      },
    ],
    foundBy: { units: { file: 'engines/etcd/locks/slots.test.ts', name: 'G7' } },
  },
]
