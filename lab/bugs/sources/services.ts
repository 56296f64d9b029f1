/** Careless guards of services, files and legacy systems. */
import { library, type SourceBug } from '../bug.ts'

const fileGuard = `${library}/engines/sqlite/guard/file/guard.ts`
const gate = `${library}/engines/sqlite/guard/proxy/gate.ts`
const gateTest = 'engines/sqlite/guard/proxy/gate.test.ts'

export const serviceBugs: readonly SourceBug[] = [
  {
    id: 'T94-rename-in-transaction',
    what: 'a guarded file is renamed to its place before the mark is committed',
    edits: [
      {
        file: fileGuard,
        find: "this.#folder.step('before the commit')",
        replaceBy: "this.#folder.apply(renamesOf(run))\n        this.#folder.step('before the commit')",
      },
    ],
    foundBy: { units: { file: 'engines/sqlite/guard/file/redo-log.test.ts', name: 'T94' } },
  },
  {
    id: 'T94-no-redo',
    what: 'a write that was committed is left to the process that committed it',
    edits: [
      {
        file: `${library}/engines/sqlite/guard/file/redo-log.ts`,
        find: "this.#folder.apply(open, 'not-applied')",
        replaceBy: '',
      },
    ],
    foundBy: { units: { file: 'engines/sqlite/guard/file/redo-log.test.ts', name: 'T94' } },
  },
  {
    id: 'T95-recorded-only',
    what: 'the proxy records the token, and forwards while an older request is under way',
    edits: [
      { file: gate, find: 'if (rivals.length === 0) break', replaceBy: 'if (rivals.length >= 0) break' },
    ],
    foundBy: { units: { file: gateTest, name: 'T95' } },
  },
  {
    id: 'T95-no-quarantine',
    what: 'the proxy takes a request that was not answered in time for one that is over',
    edits: [
      {
        file: gate,
        find: "if (how === 'unknown') request.untilMs = this.#clock.monotonicMs() + this.#mayTakeMs\n    else this.#remove(name, request)",
        replaceBy: 'this.#remove(name, request)',
      },
    ],
    foundBy: { units: { file: gateTest, name: 'T95' } },
  },
  {
    id: 'T95-quarantine-from-arrival',
    what: 'the proxy counts a quarantine from before the request was forwarded, and was paused in between',
    edits: [
      {
        file: gate,
        find: 'fence, untilMs: undefined }',
        replaceBy: 'fence, untilMs: undefined, sinceMs: this.#clock.monotonicMs() }',
      },
      {
        file: gate,
        find: "if (how === 'unknown') request.untilMs = this.#clock.monotonicMs() + this.#mayTakeMs",
        replaceBy: "if (how === 'unknown') request.untilMs = request.sinceMs + this.#mayTakeMs",
      },
    ],
    foundBy: { units: { file: gateTest, name: 'T95' } },
  },
  {
    id: 'G5-any-name',
    what: 'a service takes the name from the fence, and the holder of one name writes another',
    edits: [
      {
        file: `${library}/guards/http/read-fence.ts`,
        find: "if (fence.name !== name) throw new FenceInvalidError('wrong-name')",
        replaceBy: '',
      },
    ],
    foundBy: { units: { file: 'guards/http/fenced.test.ts', name: 'a fence for another name' } },
  },
  {
    id: 'T40-service-reads',
    what: 'a service serves a read without raising the mark',
    edits: [
      {
        file: `${library}/guards/http/fenced.ts`,
        find: 'return isGuardedRead || checkBefore ?',
        replaceBy: 'return checkBefore ?',
      },
    ],
    foundBy: { units: { file: 'guards/http/fenced.test.ts', name: 'T40' } },
  },
]
