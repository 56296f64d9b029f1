import type { Server } from './server.ts'

/** Several servers that are used as one. */
export interface Cluster<Member extends Server = Server> extends AsyncDisposable {
  readonly name: string
  readonly url: string
  readonly members: readonly Member[]
  stop(): Promise<void>
}

export function clusterOf<Member extends Server>(
  name: string,
  scheme: string,
  members: readonly Member[],
): Cluster<Member> {
  const stop = async () => {
    await Promise.all(members.map((member) => member.stop()))
  }
  return {
    name,
    url: `${scheme}://${members.map(({ host, port }) => `${host}:${port}`).join(',')}`,
    members,
    stop,
    [Symbol.asyncDispose]: stop,
  }
}

/** Starts all at once; if one fails, the others do not stay behind. */
export async function startTogether<T extends { stop(): Promise<void> }>(
  starting: readonly Promise<T>[],
): Promise<T[]> {
  const outcomes = await Promise.allSettled(starting)
  const started = outcomes.filter((outcome) => outcome.status === 'fulfilled').map(({ value }) => value)
  const failed = outcomes.find((outcome) => outcome.status === 'rejected')
  if (failed) {
    await Promise.all(started.map((each) => each.stop()))
    throw failed.reason
  }
  return started
}

/** Starts the next part; if that fails, the first part is stopped, too. */
export async function orStop<T>(first: { stop(): Promise<void> }, next: Promise<T>): Promise<T> {
  try {
    return await next
  } catch (error) {
    await first.stop()
    throw error
  }
}
