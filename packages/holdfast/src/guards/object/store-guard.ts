/** The guard itself. Calls for one object run one after the other; objects do not wait for each other. */
import { InvalidArgumentError, UnsupportedError } from '../../base/errors.ts'
import type { Fence } from '../../base/fence.ts'
import { checkName } from '../../base/names.ts'
import { checkCallOptions, checkKnownOptions } from '../../base/options.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import type { Proof, RunOptions } from '../guard.ts'
import { type Entry, GuardBase } from '../guard-base.ts'
import type { ObjectGuard, ObjectPutOptions, ObjectTx } from '../object.ts'
import type { Remembered } from '../rule.ts'
import type { GuardSettings } from '../settings.ts'
import type { ObjectBody } from './store.ts'
import { type ObjectTerms, readHead, type Seen, Visit, withinLimit } from './visit.ts'

/** Token and id of data. Only that much is ours to delete: `<key>.d/` may also have heads of names that lie below it. */
const dataName = /^(\d+)-[\w-]{22}$/

export class StoreGuard extends GuardBase<ObjectTx> implements ObjectGuard {
  readonly #terms: ObjectTerms
  readonly #queue = new SerialQueue()
  /** Heads with which fences have passed: a write by the same fence needs no look. */
  readonly #passed = new WeakMap<Fence, Seen>()

  constructor(settings: GuardSettings, terms: ObjectTerms) {
    super(settings)
    this.#terms = terms
  }

  get(proof: Proof, options?: RunOptions): Promise<Uint8Array | null> {
    return this.#call(proof, options, async (visit) => {
      await visit.look()
      return visit.read()
    })
  }

  put(proof: Proof, body: ObjectBody, options: ObjectPutOptions & RunOptions = {}): Promise<void> {
    checkKnownOptions('options', options, ['contentType', 'once', 'signal'])
    const { contentType, ...rest } = options
    return this.#write(proof, checkBody(body), contentType, rest)
  }

  delete(proof: Proof, options?: RunOptions): Promise<void> {
    return this.#write(proof, null, undefined, options)
  }

  async collect(name: string, options: { readonly signal?: AbortSignal } = {}): Promise<number> {
    checkCallOptions(options)
    const { signal } = options
    const { keyOf, store } = this.#terms
    const prefix = `${keyOf(checkName(name))}.d/`
    const { head } = await readHead(this.#terms, keyOf(name), name, signal)
    // Holders below the newest exclusive one are refused: they cannot refer to their data any more. All others may.
    const oldest = head?.remembered.exclusiveToken ?? 0n
    const stop = new AbortController()
    const keys = store.list(prefix, { signal: stop.signal })[Symbol.asyncIterator]()
    const next = () => withinLimit(this.#terms, () => keys.next(), signal, 'not-applied')
    let deleted = 0
    try {
      for (let found = await next(); !found.done; found = await next()) {
        const key = found.value
        const token = dataName.exec(key.slice(prefix.length))?.[1]
        if (token === undefined || BigInt(token) >= oldest || key === head?.ptr) continue
        await withinLimit(this.#terms, (limit) => store.delete(key, { signal: limit }), signal)
        deleted++
      }
    } finally {
      stop.abort()
    }
    return deleted
  }

  protected runEntered<T>(
    entry: Entry,
    effect: (tx: ObjectTx) => Promise<T> | T,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    return this.#visit(entry, signal, async (visit) => {
      await visit.look()
      visit.judge()
      const tx = new Transaction(visit)
      const result = await tx.during(effect)
      signal?.throwIfAborted()
      await tx.commit()
      return result
    })
  }

  protected enterIn(): Promise<void> {
    throw new UnsupportedError(
      'An object store has no transactions of yours to enter: use guard.run, guard.get or guard.put.',
    )
  }

  protected async recall(name: string): Promise<Remembered | null> {
    const { head } = await readHead(this.#terms, this.#terms.keyOf(name), name)
    return head?.remembered ?? null
  }

  protected forget(): Promise<number> {
    throw new UnsupportedError('A mark of an object stays for as long as its head: nothing can be forgotten.')
  }

  #write(
    proof: Proof,
    body: ObjectBody | null,
    contentType: string | undefined,
    options: RunOptions | undefined,
  ): Promise<void> {
    return this.#call(proof, options, async (visit, seen) => {
      await visit.look(seen)
      await visit.write(body, contentType)
    })
  }

  async #call<T>(
    proof: Proof,
    options: RunOptions | undefined,
    work: (visit: Visit, seen: Seen | undefined) => Promise<T>,
  ): Promise<T> {
    const { signal, ...entry } = this.checkEntry(proof, options)
    const result = await this.#visit(entry, signal, work)
    this.announce(entry.proofs)
    return result
  }

  #visit<T>(
    entry: Entry,
    signal: AbortSignal | undefined,
    work: (visit: Visit, seen: Seen | undefined) => Promise<T>,
  ): Promise<T> {
    const [first, ...others] = entry.proofs
    if (first === undefined || others.length > 0)
      throw new UnsupportedError(
        'An object store has no transactions over several objects: call the guard with one proof at a time.',
      )
    // Two runs, each with a call for the other's object inside, would wait for each other for ever.
    if (this.#queue.inside !== undefined)
      throw new InvalidArgumentError(
        'guard',
        'is called inside its own run, which is about one object: call it before the run or after it.',
      )
    const { fence } = first
    const visit = new Visit(this.settings, this.#terms, entry, signal)
    const body = async () => {
      signal?.throwIfAborted()
      const result = await work(visit, this.#passed.get(fence))
      this.#passed.set(fence, visit.seen)
      return result
    }
    return this.#queue.run(body, { keys: [visit.key], signal })
  }
}

interface Pending {
  readonly body: ObjectBody | null
  readonly contentType: string | undefined
}

class Transaction implements ObjectTx {
  readonly #visit: Visit
  #pending: Pending | undefined
  /** Once for all: an effect that saw two versions could write what it made of the older one. */
  #read: Promise<Uint8Array | null> | undefined
  #isOver = false

  constructor(visit: Visit) {
    this.#visit = visit
  }

  async get(): Promise<Uint8Array | null> {
    this.#assertOpen()
    if (this.#pending === undefined) {
      this.#read ??= this.#visit.read()
      return this.#read
    }
    const { body } = this.#pending
    return typeof body === 'string' ? new TextEncoder().encode(body) : body
  }

  put(body: ObjectBody, options: ObjectPutOptions = {}): void {
    this.#assertOpen()
    checkKnownOptions('options', options, ['contentType'])
    this.#pending = { body: checkBody(body), contentType: options.contentType }
  }

  delete(): void {
    this.#assertOpen()
    this.#pending = { body: null, contentType: undefined }
  }

  async during<T>(effect: (tx: ObjectTx) => Promise<T> | T): Promise<T> {
    try {
      return await effect(this)
    } finally {
      this.#isOver = true
    }
  }

  async commit(): Promise<void> {
    if (this.#pending === undefined) return this.#visit.raise()
    return this.#visit.write(this.#pending.body, this.#pending.contentType)
  }

  #assertOpen(): void {
    if (this.#isOver) throw new InvalidArgumentError('tx', 'belongs to a run that is over.')
  }
}

function checkBody(body: unknown): ObjectBody {
  if (typeof body === 'string' || body instanceof Uint8Array) return body
  throw new InvalidArgumentError('body', 'must be a string or a Uint8Array.')
}
