/**
 * Whether a path can be our file, found out before SQLite opens it: a file that is not ours must not be changed,
 * not even by the side files that opening it would create.
 */
import { accessSync, closeSync, constants, openSync, readSync, statfsSync, statSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { InvalidArgumentError, quote, UnsupportedError } from '../../core/errors.ts'
import { foreignFile, readOnly } from './failures.ts'
import { APPLICATION_ID } from './schema.ts'

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

/** Returns the absolute path, or throws a typed error that says what is wrong with it. */
export function checkFile(path: string, typeOf: FileSystemTypeOf): string {
  const file = resolve(path)
  const folder = dirname(file)
  checkFolder(folder)
  checkFileSystem(folder, typeOf)
  const found = statSync(file, { throwIfNoEntry: false })
  if (found !== undefined && !found.isFile())
    throw new InvalidArgumentError('path', `must name a file; ${quote(file)} is something else.`)
  checkWritable(file, found !== undefined)
  if (found !== undefined && found.size > 0) checkHeader(file)
  return file
}

function checkFolder(folder: string): void {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return
  throw new InvalidArgumentError('path', `must be in a folder that exists; create ${quote(folder)} first.`)
}

function checkFileSystem(folder: string, typeOf: FileSystemTypeOf): void {
  // Elsewhere the numbers mean other things; there it is an assumption, and `info.assumptions` says so.
  if (process.platform !== 'linux') return
  const kind = sharedFileSystems.get(typeOf(folder))
  if (kind === undefined) return
  throw new UnsupportedError(
    `sqlite: ${quote(folder)} is on a shared file system (${kind}). The file locks and the shared memory that ` +
      'SQLite relies on do not reach from one machine to another there, so two holders could have one name. Put ' +
      'the file on a local disk, or use an engine with a server for locks across machines.',
  )
}

/** SQLite keeps two more files beside its own, so the folder counts as well. */
function checkWritable(file: string, exists: boolean): void {
  for (const each of exists ? [file, dirname(file)] : [dirname(file)]) {
    try {
      accessSync(each, constants.R_OK | constants.W_OK)
    } catch (cause) {
      throw readOnly(each, cause)
    }
  }
}

const MAGIC = 'SQLite format 3\0'
const APPLICATION_ID_AT = 68
const HEADER_BYTES = 100

/** The schema is created in one commit together with the application id, so a file of ours always has it. */
function checkHeader(file: string): void {
  const header = Buffer.alloc(HEADER_BYTES)
  const descriptor = openSync(file, 'r')
  try {
    readSync(descriptor, header, 0, HEADER_BYTES, 0)
  } finally {
    closeSync(descriptor)
  }
  if (header.toString('latin1', 0, MAGIC.length) !== MAGIC) throw foreignFile(file, 'is not an SQLite database')
  if (header.readInt32BE(APPLICATION_ID_AT) !== APPLICATION_ID)
    throw foreignFile(file, 'is the SQLite database of another program')
}
