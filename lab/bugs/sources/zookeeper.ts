/** Bugs of the protocol on ZooKeeper, each of which a lock library on ZooKeeper has had, or nearly had. Real members show them. */
import { library, type SourceBug } from '../bug.ts'

const file = `${library}/engines/zookeeper/locks/store.ts`
const session = `${library}/engines/zookeeper/client/session.ts`
/** Members are played there. */
const seenByMember = (name: string) => ({
  units: { file: 'engines/zookeeper/client/attachment.test.ts', name },
})
const noticedBy = (name: string, test = '../test/conformance/zookeeper-store.test.ts') => ({
  units: { file: test, name, on: 'zookeeper' as const },
})

export const zooKeeperBugs: readonly SourceBug[] = [
  {
    id: 'G2-zookeeper-sequence',
    what: 'the token is the sequence number of the claim, which starts anew with its parent',
    edits: [
      {
        file,
        find: 'const token = await this.#tokenOf(container.stat, committed, path, call)',
        replaceBy: 'const token = path.order + 1n',
      },
    ],
    foundBy: noticedBy('S10'),
  },
  {
    id: 'G2-zookeeper-token-at-enqueue',
    what: 'the token of a waiter is the transaction in which it began to wait',
    edits: [
      {
        file,
        find: 'const token = await this.#tokenOf(stat, committed, path, call)',
        replaceBy: 'const token = await this.#tokenOf({ ...stat, mzxid: stat.czxid }, committed, path, call)',
      },
    ],
    foundBy: noticedBy('S9'),
  },
  {
    id: 'T73-zookeeper-no-mark',
    what: 'an abandon leaves no mark, so a late join makes a claim that nobody knows',
    edits: [
      {
        file,
        find: '// It is written until it is there: a release may delete the node in between.',
        replaceBy: 'if (attempt !== "") return',
      },
    ],
    foundBy: noticedBy('S6'),
  },
  {
    id: 'T84-zookeeper-confirm-again',
    what: 'a confirm does not ask for the version, so one that is repeated draws another token',
    edits: [
      {
        file,
        find: 'data: claimData(record, position), version: 0 }',
        replaceBy: 'data: claimData(record, position) }',
      },
    ],
    foundBy: noticedBy('S12'),
  },
  {
    id: 'G1-zookeeper-not-alone',
    what: 'a claim is granted by its creation, although it is not alone below its name',
    edits: [{ file, find: 'container.stat.numChildren === 1', replaceBy: 'container.stat.numChildren >= 1' }],
    foundBy: noticedBy('S1'),
  },
  {
    id: 'G1-zookeeper-capacity',
    what: 'permits are granted by a capacity that has been changed since it was seen',
    edits: [{ file, find: "mode === 'permits' ? this.#sameCapacity(name, seen) : []", replaceBy: '[]' }],
    foundBy: noticedBy('S36'),
  },
  {
    id: 'G7-zookeeper-release-by-attempt',
    what: 'a release ends the claim of its attempt, whichever grant that is',
    edits: [
      {
        file,
        find: 'return String(own?.token) === claim.grantId ? own : undefined',
        replaceBy: 'return own',
      },
    ],
    foundBy: noticedBy('S14'),
  },
  {
    id: 'G3-zookeeper-no-commit',
    what: 'a keep-alive re-attaches the session and reads, and a leader that was deposed answers both',
    edits: [
      {
        file,
        find: "const write = { op: 'setData', path, data: sessionData(record, this.#session) } as const",
        replaceBy: "const write = { op: 'exists', path } as const",
      },
    ],
    foundBy: noticedBy('M10', 'engines/zookeeper/locks/cluster.test.ts'),
  },
  {
    id: 'G10-zookeeper-overdue',
    what: 'a waiter whose session nobody keeps alive looks when it is woken, which prolongs the session',
    edits: [
      { file, find: 'return since === null || elapsedMs(', replaceBy: 'return since === null && elapsedMs(' },
    ],
    foundBy: noticedBy('whose keep-alive is overdue', 'engines/zookeeper/locks/queue.test.ts'),
  },
  {
    id: 'G11-zookeeper-one-guess',
    what: 'a join guesses once more whether the container is there, so processes that meet on a reaped one are told that ZooKeeper fails',
    edits: [{ file, find: 'guesses === MAX_GUESSES', replaceBy: 'guesses === 2' }],
    foundBy: noticedBy('meet on a reaped container', 'engines/zookeeper/locks/queue.test.ts'),
  },
  {
    id: 'T1-zookeeper-since-reply',
    what: 'a keep-alive counts from its answers',
    edits: [
      {
        file: session,
        find: 'return { since, timeoutMs, replies }',
        replaceBy: 'return { since: instantOf(clock), timeoutMs, replies }',
      },
    ],
    foundBy: seenByMember('T1'),
  },
  {
    id: 'G1-zookeeper-other-session',
    what: 'a member that attaches another session is believed, although the claims are gone with the own one',
    edits: [{ file: session, find: '(this.id !== 0n && id !== this.id)', replaceBy: 'id === -1n' }],
    foundBy: seenByMember('another session'),
  },
  {
    id: 'G11-zookeeper-no-drain',
    what: 'a keep-alive does not wait for what is in flight, and makes it unknown',
    edits: [{ file: session, find: 'else this.#connection.whenIdle(done)', replaceBy: 'else done()' }],
    foundBy: seenByMember('nothing comes between'),
  },
  {
    id: 'T19-zookeeper-watches-forgotten',
    what: 'pending watches are not set again on the next connection, so a wake-up is lost',
    edits: [
      {
        file: session,
        find: "for (const part of this.#watches.parts()) own.push({ op: 'setWatches', zxid, ...part })",
        replaceBy: '',
      },
    ],
    foundBy: seenByMember('has credentials, watches and requests'),
  },
]
