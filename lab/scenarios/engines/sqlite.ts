/** The embedded engine: a file, so there is no server to break. */
import { join } from 'node:path'
import { sqlite } from '../../../packages/holdfast/src/engines/sqlite/locks/index.ts'
import { isFileBusy, temporaryFolder } from '../files.ts'
import type { Addresses, Engine } from './engine.ts'

export const sqliteEngine: Engine = {
  name: 'sqlite',
  resource: 'sqlite',
  protection: 'guard',
  faults: [],
  assumes: {},
  async start() {
    const folder = temporaryFolder()
    const path = join(folder.path, 'locks.db')
    return {
      addresses: [path],
      addressesFor: () => [path],
      faults: {},
      isBlocked: async () => isFileBusy(path),
      [Symbol.asyncDispose]: async () => folder.remove(),
    }
  },
  async open([path = '']: Addresses) {
    return { backend: sqlite({ path }), close: async () => {} }
  },
}
