/** The calls that all models of locks understand: an owner takes, or gives back. */
export interface LockCall {
  readonly kind: 'acquire' | 'release'
  /** The lease, or the client where it may re-enter. Not empty. */
  readonly owner: string
  /** The token that an acquire was told; left out where it is not known. */
  readonly token?: bigint
  /** How many permits. Default 1. */
  readonly weight?: number
}
