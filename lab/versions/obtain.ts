// Gets one version, and says how a run of the tests uses it.

import { execFile } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { type Engine, folderVariable, recipes } from '../obtain/engines.ts'
import { find, unpacked, versionOf } from '../obtain/find.ts'
import { installPackage } from '../obtain/npm.ts'
import { unpackFromRelease } from '../obtain/other-debian.ts'
import type { Version } from './versions.ts'

export interface Obtained {
  /** The whole number of the version, asked of the program itself. */
  readonly number: string
  readonly node: string
  readonly environment: Readonly<Record<string, string>>
}

export async function obtain(version: Version): Promise<Obtained> {
  const target = join(unpacked, version.id)
  const { of } = version
  const obtained =
    of === 'node'
      ? await obtainNode(version, target)
      : of === 'clients'
        ? { number: clients(), node: process.execPath, environment: { HOLDFAST_TEST_CLIENTS: 'whole' } }
        : await obtainServer(version, of, target)
  if (!`${obtained.number}.`.startsWith(version.number && `${version.number}.`))
    throw new Error(`${version.title} is ${obtained.number} there by now: change lab/versions/versions.ts`)
  return obtained
}

async function obtainServer({ debian, id }: Version, of: Engine, target: string): Promise<Obtained> {
  if (debian === undefined) throw new Error(`${id} does not say where it comes from`)
  const { release, packages, folder: within, called = {} } = debian
  const { programs, jar } = recipes[of]
  const ours = jar === undefined ? programs : []
  if (!existsSync(target))
    unpackFromRelease(
      release,
      packages,
      ours.map((name) => ({ path: join(within, called[name] ?? name), name })),
      target,
    )
  const folder = join(target, within)
  const found = find(of, folder)
  if (found === null) throw new Error(`${packages.join(', ')} of ${release} lacks ${programs.join(' or ')}`)
  return {
    number: await versionOf(found),
    node: process.execPath,
    environment: { [folderVariable(of)]: folder },
  }
}

async function obtainNode({ npm = '' }: Version, target: string): Promise<Obtained> {
  if (!existsSync(target)) installPackage(npm, target)
  const node = join(target, 'node_modules', npm.replace(/@.*/, ''), 'bin/node')
  const { stdout } = await promisify(execFile)(node, ['--version'])
  return {
    number: stdout.trim().slice(1),
    node,
    environment: { PATH: [dirname(node), process.env.PATH].join(delimiter) },
  }
}

/** As test/redis/clients.ts imports them. */
function clients(): string {
  return ['ioredis5', 'ioredis', 'redis5', 'redis']
    .map((name) => new URL(`../../node_modules/${name}/package.json`, import.meta.url))
    .map((manifest) => JSON.parse(readFileSync(manifest, 'utf8')).version)
    .join(', ')
}
