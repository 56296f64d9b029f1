/** Client libraries are optional: the user installs the one that is to be used (ADR 0009). */
import { UnsupportedError } from '../base/errors.ts'

/** Loads a client library; null if it is not installed. */
export async function ifInstalled(load: () => Promise<unknown>): Promise<unknown> {
  try {
    return await load()
  } catch (error) {
    const code = (error as { readonly code?: unknown } | null)?.code
    // The second is that of `require`, which some tools put in the place of `import()`.
    if (code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND') return null
    throw error
  }
}

export function noneInstalled(scheme: string, libraries: readonly string[]): UnsupportedError {
  const install = libraries.map((name) => `npm install ${name}`).join(', or ')
  return new UnsupportedError(
    `${scheme}: needs a client library to connect with. Install one of them: ${install}. ` +
      'Bundles do not contain it: install it where the bundle runs, or make the client yourself and use createLocker.',
  )
}
