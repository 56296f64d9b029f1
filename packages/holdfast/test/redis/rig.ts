/** The stage of the tests of the Redis backend: lockers on a server, and words for waiting. */
import assert from 'node:assert/strict'
import type { Locker } from '../../src/base/types.ts'
import { openRedis, type RedisOptions } from '../../src/engines/redis/locks/assemble.ts'
import { createLocker, type LockerOptions } from '../../src/locker/locker.ts'
import type { Backend, Fencing } from '../../src/spi.ts'
import { type ClientLibrary, type ClientOptions, libraryNamed } from './clients.ts'

export interface RigOptions {
  readonly library?: ClientLibrary
  readonly client?: ClientOptions
  readonly backend?: Omit<RedisOptions, 'client'>
  readonly locker?: LockerOptions
}

/** Everything that a test opened, closed at its end. */
export class Rig implements AsyncDisposable {
  readonly #closing: (() => unknown)[] = []

  async backend(url: string, options: RigOptions = {}): Promise<Backend<Fencing>> {
    const { library = libraryNamed('ioredis 6') } = options
    const { client, close } = await library.open(url, options.client)
    const backend = openRedis({ client, ...options.backend })
    this.#closing.push(close, () => backend[Symbol.asyncDispose]())
    return backend
  }

  async locker(url: string, options: RigOptions = {}): Promise<Locker<'unfenced'>> {
    const locker = createLocker(await this.backend(url, options), options.locker) as Locker<Fencing>
    this.#closing.push(() => locker.close({ graceMs: 0 }))
    return locker as Locker<'unfenced'>
  }

  async fenced(url: string, options: RigOptions = {}): Promise<Locker<'fenced'>> {
    const backend = { fencing: 'clock-backed', ...options.backend } as const
    return (await this.locker(url, { ...options, backend })) as unknown as Locker<'fenced'>
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Servers may be gone by now; what matters is that nothing stays open.
    for (const close of this.#closing.reverse()) await Promise.resolve(close()).catch(() => {})
  }
}

/** Waits until it is so; the limit is there to end a test that would never end. */
export async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const endMs = performance.now() + 120_000
  while (!(await holds())) {
    assert(performance.now() < endMs, `never came: ${what}`)
    await pause(5)
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
