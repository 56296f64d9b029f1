/** Where in the user's program a lock was asked for. The stack is captured at once, and read only if it is needed. */

/** `calledAs`: the function that the user called; frames above it are left out. */
export function callSite(calledAs: (...args: never[]) => unknown): () => string {
  const captured: { stack?: string } = {}
  // Some runtimes do not have it.
  if (typeof Error.captureStackTrace === 'function') Error.captureStackTrace(captured, calledAs)
  else captured.stack = new Error('call site').stack ?? ''
  return () => firstOutside(framesOf(captured.stack))
}

/** `Error.prepareStackTrace` of a tool may have made it into something else than text. */
const framesOf = (stack: unknown = '') => `${stack}`.split('\n').filter((line) => /:\d+:\d+\)?$/.test(line))

/** The place of a frame: what is in the brackets, or the whole of it. */
const placeOf = (frame: string) => frame.replace(/^\s*at (?:async )?/, '').replace(/^.*\((.*)\)$/, '$1')

/** Frames of the library may lie between this file and the user's code. A bundle may have all of them in one folder, or in one file. */
function firstOutside(frames: readonly string[]): string {
  const places = frames.map(placeOf)
  const site = places.find((place) => ownFolder === '' || !place.startsWith(ownFolder)) ?? places[0]
  return site ?? 'unknown'
}

// `import.meta` does not survive every bundler.
const ownPlace = placeOf(framesOf(new Error('here').stack)[0] ?? '')
/** The library's folder. This file is in its `base` in the sources, and in its `shared` or beside the entry points in the build. */
const ownFolder = ownPlace.replace(/[^/\\]*$/, '').replace(/([/\\])(?:base|shared)[/\\]$/, '$1')
