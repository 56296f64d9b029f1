/** A JSON answer, or an error; never an endless wait, because the server may be stopped or cut off on purpose. */
export async function fetchJson<T>(url: string, init: RequestInit = {}, withinMs = 2_000): Promise<T> {
  const response = await fetch(url, { ...init, signal: AbortSignal.timeout(withinMs) })
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`)
  return (await response.json()) as T
}
