/** The list of claims that an example checks, and its exit code. */

export interface Claims {
  say(text: string): void
  /** Something that must hold. */
  check(claim: string, holds: boolean): void
  /** A control, without the protection, has to lose. If it did not, the run shows nothing. */
  mustLose(claim: string, loses: boolean): void
}

export function startClaims(): Claims & { readonly finish: () => void } {
  const verdict = { checked: 0, broken: 0, isVoid: false }
  return {
    say: (text) => console.log(text),
    check(claim, holds) {
      verdict.checked++
      if (!holds) verdict.broken++
      console.log(`  ${holds ? '✓' : '✗'} ${claim}`)
    },
    mustLose(claim, loses) {
      if (!loses) verdict.isVoid = true
      console.log(`  ${loses ? '✓' : '∅'} control: ${claim}`)
    },
    finish() {
      const { checked, broken, isVoid } = verdict
      if (broken > 0) console.log(`\n${broken} of ${checked} claims do not hold.`)
      else if (isVoid) console.log('\nVoid: a control did not lose, so there was nothing to protect against.')
      else console.log(`\nAll ${checked} claims hold.`)
      process.exitCode = broken > 0 || isVoid ? 1 : 0
    },
  }
}

const LIMIT_MS = 120_000

/** Without it, an example that hangs would hang for ever. */
export function limitTime(): void {
  setTimeout(() => {
    console.error('It took too long. The machine may be busy; try again.')
    process.exit(1)
  }, LIMIT_MS).unref()
}
