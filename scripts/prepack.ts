// Runs before `npm pack` and `npm publish` of the library: puts the repository's README and licence into the
// package. Does not build, so that packing never changes what was tested.

import { copyFileSync, existsSync } from 'node:fs'
import { join } from 'node:path'
import { root } from './lib/repository.ts'

const library = join(root, 'packages/holdfast')
if (!existsSync(join(library, 'dist/index.js')))
  throw new Error('there is no build; run `npm run build` first')
for (const name of ['README.md', 'LICENSE']) copyFileSync(join(root, name), join(library, name))
