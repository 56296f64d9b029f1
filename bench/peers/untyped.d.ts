// The package has types, but its `exports` do not say where they are. This is what the benchmark uses.
declare module 'redlock' {
  interface Lock {
    release(): Promise<unknown>
  }
  export class ExecutionError extends Error {}
  export default class Redlock {
    constructor(clients: Iterable<import('ioredis').Redis>)
    acquire(resources: string[], durationMs: number): Promise<Lock>
  }
}
