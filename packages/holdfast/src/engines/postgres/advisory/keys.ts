/**
 * The 64-bit key by which PostgreSQL knows a name. By default it is made of a hash that spreads names evenly over all 64
 * bits (T49, hash collisions); or it is the user's own, to exclude code that locks the same keys by hand.
 */
import { hash } from 'node:crypto'
import { InvalidArgumentError } from '../../../base/errors.ts'

/** `hashtext`: as in `pg_advisory_lock(hashtext('name'))`, computed by the server. */
export type KeyChoice = 'hashtext' | ((name: string) => bigint)

const LOWEST = -(2n ** 63n)
const HIGHEST = 2n ** 63n - 1n

/**
 * The first eight bytes of SHA-256 over namespace, a zero byte and name, as a signed number. Neither of the two contains
 * a zero byte, so no two pairs are mistaken for each other.
 */
export function defaultKey(namespace: string, name: string): bigint {
  return hash('sha256', `${namespace}\0${name}`, 'buffer').readBigInt64BE()
}

/** For what is not a name: a connection or a session. */
export function keyOfId(id: string): string {
  return hash('sha256', `connection\0${id}`, 'buffer').readBigInt64BE().toString()
}

export function checkKeyChoice(choice: unknown): KeyChoice | undefined {
  if (choice === undefined || choice === 'hashtext' || typeof choice === 'function')
    return choice as KeyChoice | undefined
  throw new InvalidArgumentError('key', "must be a function of the name, or 'hashtext'.")
}

export function checkedKey(key: unknown): bigint {
  if (typeof key !== 'bigint' || key < LOWEST || key > HIGHEST)
    throw new InvalidArgumentError('key(name)', 'must return a bigint of 64 bits, with sign.')
  return key
}

/** How many names' keys are remembered, where the server computes them. */
const MOST_REMEMBERED = 10_000

/** Keys as text, as they go into statements. */
export class Keys {
  readonly #namespace: string
  readonly #choice: KeyChoice | undefined
  readonly #ask: (name: string) => Promise<string>
  readonly #remembered = new Map<string, string>()

  constructor(
    namespace: string,
    choice: KeyChoice | undefined,
    askServer: (name: string) => Promise<string>,
  ) {
    this.#namespace = namespace
    this.#choice = choice
    this.#ask = askServer
  }

  /** Whether two names are likely to have the same key: the default uses all 64 bits. */
  get mayCollide(): boolean {
    return this.#choice !== undefined
  }

  of(name: string): string | Promise<string> {
    if (this.#choice === undefined) return defaultKey(this.#namespace, name).toString()
    if (this.#choice !== 'hashtext') return checkedKey(this.#choice(name)).toString()
    return this.#remembered.get(name) ?? this.#askFor(name)
  }

  async #askFor(name: string): Promise<string> {
    const key = await this.#ask(name)
    if (this.#remembered.size >= MOST_REMEMBERED) this.#remembered.clear()
    this.#remembered.set(name, key)
    return key
  }
}
