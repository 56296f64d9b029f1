/** The URL of a locker: `scheme:location?parameters`. Each backend reads it in its `from-url.ts`. */
import { InvalidArgumentError, quote } from '../base/errors.ts'
import { checkIntegerText, checkOneOf } from '../base/options.ts'
import type { Backend, Fencing } from '../spi.ts'
import type { IdentityOptions } from './backend-kit.ts'

/** Reads the value of a parameter, or refuses it. */
export type ReadParameter<T> = (name: string, text: string) => T

export const asText: ReadParameter<string> = (_, text) => text
export const asCount: ReadParameter<number> = (name, text) => checkIntegerText(name, text, { min: 1 })
export const asFlag: ReadParameter<boolean> = (name, text) =>
  checkOneOf(name, text, ['true', 'false']) === 'true'

export function asOneOf<T extends string>(...allowed: readonly T[]): ReadParameter<T> {
  return (name, text) => checkOneOf<T>(name, text, allowed)
}

const identityParameters: { readonly [name in keyof Required<IdentityOptions>]: ReadParameter<unknown> } = {
  namespace: asText,
  issuer: asText,
  epoch: (name, text) => checkIntegerText(name, text, { min: 0 }),
}

/**
 * The module of an engine that is opened by URL. What it throws reaches the user: turn the client's connect error into
 * `BackendUnavailableError`, `not-applied`.
 */
export interface FromUrl {
  openFromUrl(url: LockerUrl): Promise<Backend<Fencing>>
}

/** Engines by the scheme of their URLs, in lower case. A module is loaded when a URL has its scheme. */
export type Engines = Readonly<Record<string, () => Promise<FromUrl>>>

export class LockerUrl {
  readonly scheme: string
  /** The text between `scheme:` and the question mark, as it was written, `//` included: `//host:1234/path`. It may hold a password. */
  readonly location: string
  readonly parameters: ReadonlyMap<string, string>

  constructor(scheme: string, rest: string) {
    const [location = '', ...query] = rest.split('?')
    this.scheme = scheme
    this.location = location
    this.parameters = parseParameters(query.join('?'))
  }

  /**
   * The parameters as options: those of every backend, and the backend's own. Any other parameter is refused, because a
   * misspelt one would be ignored; `others` are read elsewhere.
   */
  options<T extends object>(
    own: { readonly [name in keyof T]-?: ReadParameter<Exclude<T[name], undefined>> },
    others: readonly string[] = [],
  ): IdentityOptions & Partial<T> {
    const readers = new Map<string, ReadParameter<unknown>>([
      ...Object.entries(identityParameters),
      ...Object.entries<ReadParameter<unknown>>(own),
    ])
    const known = [...readers.keys(), ...others]
    const options: Record<string, unknown> = {}
    for (const [name, text] of this.parameters) {
      if (!known.includes(name))
        throw new InvalidArgumentError(
          'url',
          `has the parameter ${quote(name)}, which is unknown; there are: ${known.join(', ')}.`,
        )
      const read = readers.get(name)
      if (read !== undefined) options[name] = read(name, text)
    }
    return options as IdentityOptions & Partial<T>
  }

  /** The location as a path or a name, for engines that have no host. */
  withoutHost(): string {
    const { scheme, location } = this
    // memory://jobs would quietly be another engine than memory:jobs, and sqlite://locks.db a file in the root folder.
    if (/^\/\/(?!\/)/.test(location)) {
      // With an @ it was meant for another engine, and may hold a password.
      const rest = /@|^$/.test(location.slice(2)) ? '…' : location.slice(2)
      const meant = [`${scheme}:${rest}`, ...(rest.includes('/') ? [`${scheme}:/${rest}`] : [])]
      throw new InvalidArgumentError(
        'url',
        `must not have // after ${scheme}:, because there is no host to name; write ${meant.map(quote).join(' or ')}.`,
      )
    }
    try {
      return decodeURIComponent(location)
    } catch {
      throw new InvalidArgumentError('url', 'has a % that does not start an escape; write it as %25.')
    }
  }
}

function parseParameters(query: string): ReadonlyMap<string, string> {
  const parameters = new Map<string, string>()
  for (const [name, value] of new URLSearchParams(query)) {
    if (parameters.has(name)) throw new InvalidArgumentError('url', `has the parameter ${quote(name)} twice.`)
    parameters.set(name, value)
  }
  return parameters
}

/** Opens a backend on a client that was made for it. The client is closed again if that fails. */
export async function onOwnClient<B>(close: () => Promise<void>, open: () => B | Promise<B>): Promise<B> {
  try {
    return await open()
  } catch (error) {
    await close()
    throw error
  }
}
