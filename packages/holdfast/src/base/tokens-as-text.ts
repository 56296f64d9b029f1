/**
 * Lets `JSON.stringify` write an object, its tokens as text. By itself it throws on a bigint. `toJSON` is not enumerable:
 * copies, comparisons and what is printed stay as they are.
 */
export function tokensAsText<T extends object>(value: T): T {
  return Object.defineProperty(value, 'toJSON', { value: toJSON })
}

function toJSON(this: object): object {
  const texts = Object.entries(this).map(([key, value]) => [
    key,
    typeof value === 'bigint' ? `${value}` : value,
  ])
  return Object.fromEntries(texts)
}
