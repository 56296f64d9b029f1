/**
 * The trace of a run, as a running hash by which two runs are compared, and, for readers, as lines.
 */
export class Trace {
  readonly #lines: string[] | null
  #hash = 0x811c9dc5
  #notes = 0

  constructor(options: { readonly keepLines: boolean }) {
    this.#lines = options.keepLines ? [] : null
  }

  get lines(): readonly string[] {
    return this.#lines ?? []
  }

  get hash(): string {
    return `${(this.#hash >>> 0).toString(16).padStart(8, '0')}-${this.#notes}`
  }

  note(atMs: number, who: string, what: string, detail: string | number = ''): void {
    this.#notes++
    this.#mix(Math.round(atMs * 1_000))
    this.#mixText(who)
    this.#mixText(what)
    if (typeof detail === 'number') this.#mix(detail)
    else this.#mixText(detail)
    this.#lines?.push(`${(atMs / 1_000).toFixed(4).padStart(9)} ${who.padEnd(8)} ${what} ${detail}`)
  }

  #mix(value: number): void {
    this.#hash = Math.imul(this.#hash ^ (value | 0), 0x01000193)
    this.#hash ^= this.#hash >>> 15
  }

  #mixText(text: string): void {
    let hash = this.#hash
    for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193)
    this.#hash = hash ^ (hash >>> 13)
  }
}
