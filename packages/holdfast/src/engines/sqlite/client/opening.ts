/** Opening a file of SQLite. */
import { statfsSync, statSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { InvalidArgumentError, quote, UnsupportedError } from '../../../base/errors.ts'

/** The numbers by which `statfs` tells file systems that reach beyond this machine (Linux, `magic.h` and others). */
const sharedFileSystems = new Map<number, string>([
  [0x6969, 'NFS'],
  [0x517b, 'SMB'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB 2'],
  [0x01021997, '9p'],
  [0x5346414f, 'AFS'],
  [0x6b414653, 'AFS'],
  [0x73757245, 'Coda'],
  [0x00c36400, 'Ceph'],
  [0x0bd00bd0, 'Lustre'],
  [0x19830326, 'BeeGFS'],
  [0x47504653, 'GPFS'],
  [0x7461636f, 'OCFS2'],
  [0x01161970, 'GFS2'],
  [0x65735546, 'FUSE'],
  [0x786f4256, 'VirtualBox shared folders'],
  [0xbacbacbc, 'VMware shared folders'],
])

export type FileSystemTypeOf = (folder: string) => number

export const fileSystemTypeOf: FileSystemTypeOf = (folder) => statfsSync(folder).type >>> 0

/** The kind of a file system that reaches beyond this machine; undefined for others. Elsewhere than on Linux the numbers mean other things. */
export function sharedFileSystemOf(folder: string, typeOf = fileSystemTypeOf): string | undefined {
  return process.platform === 'linux' ? sharedFileSystems.get(typeOf(folder)) : undefined
}

/** The folder of a file, which must exist. */
export function checkFolderOf(path: string): string {
  const folder = dirname(resolve(path))
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return folder
  throw new InvalidArgumentError('path', `must be in a folder that exists; create ${quote(folder)} first.`)
}

/** A static import would fail on a runtime without the module, before anything could say what is needed. */
export function openDatabase(path: string): DatabaseSync {
  const sqlite = process.getBuiltinModule('node:sqlite')
  if (sqlite === undefined)
    throw new UnsupportedError('SQLite needs the module node:sqlite, and this runtime does not have it.')
  return new sqlite.DatabaseSync(path)
}
