/**
 * Plants a bug in the process that is being started: `node --import lab/bugs/planting.ts …`. The sources are changed
 * as they are loaded; what is on disk stays as it is. An edit that does not fit ends the process.
 */
import { registerHooks } from 'node:module'
import { type Edit, edited } from './bug.ts'

/** The variable that carries the edits. */
export const PLANTED = 'HOLDFAST_PLANTED_BUG'

const edits = JSON.parse(process.env[PLANTED] ?? '[]') as readonly Edit[]
const left = new Set(edits)

registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context)
    const here = edits.filter(({ file }) => url.endsWith(`/${file}`))
    if (here.length === 0) return loaded
    for (const edit of here) left.delete(edit)
    return { ...loaded, source: edited(String(loaded.source), here) }
  },
})

process.on('exit', () => {
  if (left.size === 0) return
  console.error(`not loaded, so not planted: ${[...left].map(({ file }) => file).join(', ')}`)
  process.exitCode = 1
})
