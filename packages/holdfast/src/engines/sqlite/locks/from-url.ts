/** `sqlite:file.db`, `sqlite:/var/lib/file.db` and the usual `sqlite:///var/lib/file.db` name a file alike. */
import { InvalidArgumentError } from '../../../base/errors.ts'
import { asOneOf, type LockerUrl } from '../../../kit/url.ts'
import type { Backend } from '../../../spi.ts'
import { sqlite } from './index.ts'

export async function openFromUrl(url: LockerUrl): Promise<Backend<'fenced'>> {
  const path = url.withoutHost().replace(/^\/\/(?=\/)/, '')
  if (path === '')
    throw new InvalidArgumentError(
      'url',
      "must name a file: 'sqlite:locks.db' or 'sqlite:/var/lib/locks.db'.",
    )
  return sqlite({
    path,
    ...url.options<{ synchronous: 'normal' | 'full' }>({ synchronous: asOneOf('normal', 'full') }),
  })
}
