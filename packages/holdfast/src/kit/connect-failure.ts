/** Why no connection was made, and what to do about it, as far as it is the same for every server. Undefined: it is none of these reasons. */
export function connectFailure(
  host: string,
  { code = '', message }: { readonly code?: string; readonly message: string },
  advice: { readonly start: string; readonly ports: string },
): string | undefined {
  if (/CERT|SELF_SIGNED|UNABLE_TO/.test(code) && !/ALERT/.test(code))
    return `${host} has a certificate that is not accepted: ${message}. Give its authority as \`ca\`, or the name in it as \`servername\``
  if (/^(ENOTFOUND|EAI_AGAIN)$/.test(code))
    return `${host} is not known: ${message}. Check the name of the host`
  if (code === 'ECONNREFUSED')
    return `nothing listens at ${host}: ${message}. ${advice.start}. ${advice.ports}`
  return undefined
}
