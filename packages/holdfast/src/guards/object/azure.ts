/** Blobs in a container of Azure: `new ContainerClient(…)` of `@azure/storage-blob`, version 12. */
import { buffer } from 'node:stream/consumers'
import { InvalidArgumentError, quote } from '../../base/errors.ts'
import { askingOf, checkMethods, given, isAbsent, isRefusedWrite, type ObjectStore } from './store.ts'

interface SendOptions {
  readonly abortSignal?: AbortSignal
}

interface AzureBlob {
  download(
    offset?: number,
    count?: number,
    options?: SendOptions,
  ): Promise<{
    readonly readableStreamBody?: NodeJS.ReadableStream | undefined
    readonly etag?: string | undefined
  }>
  upload(
    body: string | Uint8Array,
    length: number,
    options?: SendOptions & {
      readonly conditions?: { readonly ifMatch?: string; readonly ifNoneMatch?: string }
      readonly blobHTTPHeaders?: { readonly blobContentType?: string }
    },
  ): Promise<{ readonly etag?: string | undefined }>
  deleteIfExists(options?: SendOptions): Promise<unknown>
}

/** The part of the SDK's `ContainerClient` that is used. */
export interface AzureContainer {
  getBlockBlobClient(name: string): AzureBlob
  listBlobsFlat(options: SendOptions & { readonly prefix: string }): AsyncIterable<{ readonly name: string }>
}

export function azureStore(container: AzureContainer): ObjectStore {
  const methods = ['getBlockBlobClient', 'listBlobsFlat']
  checkMethods('container', container, methods, 'a ContainerClient of @azure/storage-blob')
  const blobOf = (key: string) => {
    if (/\\|(?:^|\/)\.{1,2}(?:\/|$)/.test(key))
      throw new InvalidArgumentError(
        'key',
        `${quote(key)} has a backslash, or a segment . or .., and would lead to another blob in a URL.`,
      )
    return container.getBlockBlobClient(key)
  }
  return {
    async get(key, { signal } = {}) {
      const blob = blobOf(key)
      return ask(
        async () => {
          const found = await blob.download(0, undefined, given({ abortSignal: signal }))
          const { readableStreamBody, etag = '' } = found
          return { body: readableStreamBody ? await buffer(readableStreamBody) : new Uint8Array(), etag }
        },
        isAbsent,
        'not-applied',
      )
    },
    async put(key, body, { ifMatch, ifNoneMatch, contentType, signal } = {}) {
      const blob = blobOf(key)
      const options = {
        ...given({ abortSignal: signal }),
        conditions: given({ ifMatch, ifNoneMatch }),
        blobHTTPHeaders: given({ blobContentType: contentType }),
      }
      const upload = async () => (await blob.upload(body, Buffer.byteLength(body), options)).etag ?? ''
      // The SDK repeats requests by itself, and its errors do not say so.
      return ask(upload, isRefusedWrite, 'unknown')
    },
    async delete(key, { signal } = {}) {
      const blob = blobOf(key)
      await ask(() => blob.deleteIfExists(given({ abortSignal: signal })))
    },
    async *list(prefix, { signal } = {}) {
      const names = container
        .listBlobsFlat({ prefix, ...given({ abortSignal: signal }) })
        [Symbol.asyncIterator]()
      const next = () => ask(() => names.next(), undefined, 'not-applied')
      for (let found = await next(); found && !found.done; found = await next()) yield found.value.name
    },
  }
}

const ask = askingOf('azure', (error) => {
  const { code, statusCode } = (error ?? {}) as { code?: string; statusCode?: number }
  return { status: statusCode, code }
})
