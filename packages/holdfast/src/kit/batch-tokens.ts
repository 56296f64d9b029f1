/**
 * Tokens of engines in which all writes of one transaction share a version. The low bits of a token say where in the
 * transaction its write stood, so requests that leave together get different tokens.
 *
 *   etcd, 128 for each revision: token = revision × 128 + position × 4 + mode
 */
export class BatchTokens {
  /** The most writes that have a version in common. 128: a token is version × 128 + position. */
  readonly perVersion: number

  constructor(perVersion: number) {
    this.perVersion = perVersion
  }

  /** `position`: below `perVersion`. */
  token(version: bigint | number, position: number): bigint {
    return BigInt(version) * BigInt(this.perVersion) + BigInt(position)
  }

  /** Null for text that is no token of this kind. */
  parse(grantId: string): { readonly version: number; readonly position: number } | null {
    const token = /^\d{1,19}$/.test(grantId) ? BigInt(grantId) : 0n
    const version = Number(token / BigInt(this.perVersion))
    return version === 0 ? null : { version, position: Number(token % BigInt(this.perVersion)) }
  }
}
