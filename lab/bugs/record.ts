/** The track record as a document: made from the bank and from what was measured. */
import type { SourceBug } from './bug.ts'
import type { Caught } from './catching.ts'
import type { FoundBug } from './found.ts'

/** Cells that a run measures; they change with every change of the core, and are not compared. */
const MEASURED = 2

export function trackRecord(
  bank: readonly SourceBug[],
  results: ReadonlyMap<string, Caught>,
  found: readonly FoundBug[],
): string {
  const bugs = bank.flatMap((bug) => (bug.where === undefined ? [] : [{ ...bug, where: bug.where }]))
  const rows = bugs.map((bug) => {
    const caught = results.get(bug.id)
    return cells([bug.id, bug.what, bug.where, how(bug), within(bug), seedsOf(caught), caught?.rule ?? '–'])
  })
  const notes = bugs.filter(({ note }) => note !== undefined).map(({ id, note }) => `- ${id}: ${note}.`)
  return `# Track record

Made by \`npm run bugs -- --write\`; a test compares it with the bank in \`lab/bugs\` and catches every bug again.

## Historical bugs

Where each happened is what docs/traps.md says; a trap that names no library or service says so. Each is planted in our
sources, or in the simulated engine or resource where it was the engine's, and must be caught by the simulation within
the stated number of seeds (counted from seed 1; some with the faults narrowed, as the table says), or by the
conformance suite run against the memory backend. The last two columns say what the last recorded run needed and which
rule or case noticed it first. Some are planted as the nearest thing to the original that this design allows, and some
only together with the removal of a second line of defence; the notes say which.

${cells(['bug', 'what', 'where it happened', 'caught by', 'within', 'needed', 'noticed by'])}
${cells(['---', '---', '---', '---', '---', '---', '---'])}
${rows.join('\n')}

${bugs.length} bugs, all caught.

### Notes

${notes.join('\n')}

## Bugs of our own

To see one again, take its fix out and run what is named in
the third column; seeds are for \`npm run sim -- --seed N\`.

${cells(['what', 'where', 'shown by', 'state'])}
${cells(['---', '---', '---', '---'])}
${found.map(({ what, where, shownBy, state }) => cells([what, where, shownBy, state])).join('\n')}
`
}

/** The document without what was measured. */
export function comparable(record: string): string {
  return record
    .split('\n')
    .map((line) => (/^\| [GT]\d/.test(line) ? line.split(' | ').slice(0, -MEASURED).join(' | ') : line))
    .join('\n')
}

function how({ foundBy: { simulation } }: SourceBug): string {
  if (simulation === undefined) return 'conformance'
  if (simulation.focus === undefined) return 'simulation'
  const { mode, faults } = simulation.focus
  const kinds = faults === undefined ? 'all faults' : faults.length === 0 ? 'no faults' : faults.join(' + ')
  return `simulation, ${mode ?? 'all modes'}: ${kinds}`
}

function within({ foundBy: { simulation } }: SourceBug): string {
  return simulation === undefined ? 'one run' : `${simulation.seeds} seeds`
}

function seedsOf(caught: Caught | undefined): string {
  if (caught === undefined || caught.seeds === null) return 'not caught'
  return caught.seeds === 0 ? 'one run' : `${caught.seeds}`
}

function cells(texts: readonly string[]): string {
  return `| ${texts.map((text) => text.replaceAll('|', '\\|')).join(' | ')} |`
}
