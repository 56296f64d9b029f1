/** The passwords of the engine's URL, which nothing that is printed may show. */
let url = ''

export function hidePasswordsOf(opened: string): void {
  url = opened
}

/** Also where a message quotes a part of the URL. */
export function withoutPasswords(text: string): string {
  const [, authority = ''] = /^[a-z0-9+]+:\/\/([^/?#]*)/i.exec(url) ?? []
  // Up to the last @, because a password may contain one. A list of hosts may have a password each.
  const written = [authority, ...authority.split(',')].map((part) => /^[^:]*:(.*)@/.exec(part)?.[1] ?? '')
  const forms = new Set(written.flatMap((password) => [password, decoded(password)]))
  return [...forms].reduce((shown, form) => (form === '' ? shown : shown.replaceAll(form, '…')), text)
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    // It is no encoded text, so nothing else decodes it either.
    return text
  }
}
