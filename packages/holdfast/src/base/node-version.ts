/**
 * Refuses an older Node at import. Without this check the library would load, fail inside on what is missing there, and
 * retry until the wait is over. This file needs nothing that an older Node lacks. The modules that every entry point
 * loads first import it.
 */
const OLDEST_NODE = [22, 13]

/** Null if this version will do. */
export function complaintAboutNode(version: string): string | null {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  const [oldestMajor = 0, oldestMinor = 0] = OLDEST_NODE
  if (major > oldestMajor || (major === oldestMajor && minor >= oldestMinor)) return null
  return `holdfast needs Node ${OLDEST_NODE.join('.')} or newer, and this is Node ${version}.`
}

const complaint = complaintAboutNode(process.versions.node)
if (complaint !== null) throw new Error(complaint)
