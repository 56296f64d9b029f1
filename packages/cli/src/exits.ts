/** Exit codes of the commands, and what failures become. The codes below 128 are those of `sysexits.h` where it has one. */

export const EXIT = {
  /** A look that found nothing: no leader, no holder that matches. */
  nothing: 1,
  usage: 64,
  unavailable: 69,
  /** A failure that no other code names. */
  internal: 70,
  busy: 75,
  lost: 79,
  notExecutable: 126,
  notFound: 127,
  /** And the number of the signal. */
  signalled: 128,
} as const

/** Ends the program with a code, and with one sentence on stderr if it has one. */
export class Exit extends Error {
  readonly exitCode: number

  constructor(exitCode: number, message = '', options?: ErrorOptions) {
    super(message, options)
    this.exitCode = exitCode
  }
}

export function usageError(message: string): Exit {
  return new Exit(EXIT.usage, message)
}

const codes: Readonly<Record<string, number>> = {
  INVALID_ARGUMENT: EXIT.usage,
  UNSUPPORTED: EXIT.usage,
  CAPACITY_MISMATCH: EXIT.usage,
  BACKEND_UNAVAILABLE: EXIT.unavailable,
  ACQUIRE_TIMEOUT: EXIT.busy,
  QUEUE_FULL: EXIT.busy,
  LEASE_LOST: EXIT.lost,
}

/** `busyCode`: the caller's own instead of 75. */
export function exitCodeOf(error: unknown, busyCode: number = EXIT.busy): number {
  const code = error instanceof Exit ? error.exitCode : codeOf(error)
  return code === EXIT.busy ? busyCode : code
}

function codeOf(error: unknown): number {
  const { code: name, cause } = (error ?? {}) as { readonly code?: unknown; readonly cause?: unknown }
  // The engine's own refusal, of a password for example. Else it is ours, of a feature, a `--require` or a package that is missing.
  if (name === 'UNSUPPORTED' && cause !== undefined && !isMissingPackage(cause)) return EXIT.unavailable
  return codes[String(name)] ?? EXIT.internal
}

function isMissingPackage(error: unknown): boolean {
  return (error as { readonly code?: unknown } | null)?.code === 'ERR_MODULE_NOT_FOUND'
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
