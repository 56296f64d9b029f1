/** The names of cases in a report, which say what was really shown. */

/** A title without the numbers of guarantees and traps: only a case that ran and passed is proof of them. */
export function sentenceOf(title: string): string {
  return title.replace(/^([GT]\d+ )+/, '')
}

export function exceptionTitle(
  each: { readonly rule: string; readonly title: string },
  exception: { readonly why: string },
): string {
  return `exception ${each.rule}: ${sentenceOf(each.title)} (${exception.why})`
}
