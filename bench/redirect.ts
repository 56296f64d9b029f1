/** Loaded first by each child process: makes `holdfast` the package in the folder that the environment names. */
import { registerHooks } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const folder = process.env.HOLDFAST_BENCH_PACKAGE
if (folder === undefined) throw new Error('HOLDFAST_BENCH_PACKAGE names no package.')
// A package may import itself by its name: imported from inside that folder, it is the one there.
const parentURL = pathToFileURL(join(folder, 'package.json')).href

registerHooks({
  resolve(specifier, context, next) {
    const isHoldfast = specifier === 'holdfast' || specifier.startsWith('holdfast/')
    return next(specifier, isHoldfast ? { ...context, parentURL } : context)
  },
})
