/** The environment of a command under a lease. */
import { readFileSync } from 'node:fs'
import type { Fence, FenceKey } from 'holdfast'
import { usageError } from './exits.ts'

export interface EnvironmentFlags {
  readonly signKeyFile?: string
  readonly passApiToken?: boolean
}

const ours = ['HOLDFAST_NAME', 'HOLDFAST_FENCING_TOKEN', 'HOLDFAST_FENCE', 'HOLDFAST_TICK']

/** `further`: variables that only one command sets. What an outer `holdfast run` has set is not passed on. */
export async function environmentOf(
  lease: { readonly name: string; readonly fence?: Fence },
  { passApiToken = false }: EnvironmentFlags,
  key: FenceKey | undefined,
  further: Readonly<Record<string, string>> = {},
): Promise<NodeJS.ProcessEnv> {
  const left = [...ours, ...(passApiToken ? [] : ['HOLDFAST_API_TOKEN'])]
  const inherited = Object.fromEntries(Object.entries(process.env).filter(([name]) => !left.includes(name)))
  const { name, fence } = lease
  if (fence === undefined) return { ...inherited, HOLDFAST_NAME: name, ...further }
  const { formatFence } = await import('holdfast')
  return {
    ...inherited,
    HOLDFAST_NAME: name,
    HOLDFAST_FENCING_TOKEN: String(fence.token),
    HOLDFAST_FENCE: formatFence(fence, key === undefined ? {} : { signWith: key }),
    ...further,
  }
}

const MIN_SECRET_BYTES = 32

/** It is read before anything is locked. */
export function readSignKey({ signKeyFile: path }: EnvironmentFlags): FenceKey | undefined {
  return path === undefined ? undefined : readKey(path, '--sign-key-file')
}

/** A file with the id of the key and its secret in base64, apart by white space. */
export function readKey(path: string, flag: string): FenceKey {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw usageError(`${flag} cannot be read: ${(error as Error).message}.`)
  }
  const [, id, encoded] = /^\s*([\w-]{1,64})\s+([A-Za-z0-9+/_=-]+)\s*$/.exec(text) ?? []
  const secret = Buffer.from(encoded ?? '', 'base64')
  if (id === undefined || secret.length < MIN_SECRET_BYTES)
    throw usageError(
      `${flag} must have an id and, after a space, a secret of ${MIN_SECRET_BYTES} bytes or more in base64.`,
    )
  return { id, secret }
}
