/** The first two numbers of a server's version. */
export type RedisVersion = readonly [major: number, minor: number]

/** Scripts, `SET … PX` and `EXISTS` of several keys are older; 6.2 is the oldest that anybody still maintains. */
export const OLDEST_REDIS: RedisVersion = [6, 2]

/** Of a version as `INFO` tells it; one that does not tell is taken as it is. */
export function isOlder(version: string, [major, minor]: RedisVersion): boolean {
  const [, itsMajor, itsMinor] = /^(\d+)\.(\d+)/.exec(version) ?? []
  if (itsMajor === undefined) return false
  return Number(itsMajor) < major || (Number(itsMajor) === major && Number(itsMinor) < minor)
}
