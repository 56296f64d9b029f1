// How a check speaks: one line when all is well, otherwise one line per complaint with its place.

export interface Complaint {
  readonly file: string
  readonly line?: number
  readonly message: string
}

export function finish(check: string, complaints: readonly Complaint[], success: string): void {
  if (complaints.length === 0) {
    console.log(`${check}: ${success}`)
    return
  }
  for (const { file, line, message } of complaints) {
    console.error(`${line === undefined ? file : `${file}:${line}`}: ${message}`)
  }
  console.error(`${check}: ${complaints.length} complaint${complaints.length === 1 ? '' : 's'}`)
  process.exitCode = 1
}
