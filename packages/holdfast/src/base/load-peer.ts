/**
 * Loads an optional peer: a package that the user may have installed (ADR 0009). The layer check has the table of these
 * packages, with the engine or recipe that may load each.
 *
 * The name is a variable, and the comments are for webpack and Vite, so that bundlers leave the import alone. They would
 * fail on the peers that the program does not use, because those are not installed.
 */
export function loadPeer(name: string): Promise<unknown> {
  return import(/* webpackIgnore: true */ /* @vite-ignore */ name)
}
