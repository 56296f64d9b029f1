/** Objects in a bucket of S3, or of what speaks its language: `new S3({ … })` of `@aws-sdk/client-s3`, version 3. */
import { limits } from '../../base/defaults.ts'
import { checkText } from '../../base/names.ts'
import { askingOf, checkMethods, given, isAbsent, isRefusedWrite, type ObjectStore } from './store.ts'

interface SendOptions {
  readonly abortSignal?: AbortSignal
}

interface Named {
  readonly Bucket: string
  readonly Key: string
}

interface Page {
  readonly Contents?: readonly { readonly Key?: string | undefined }[] | undefined
  readonly NextContinuationToken?: string | undefined
}

/** The part of the SDK's `S3` that is used. Its `S3Client` has no such methods. */
export interface S3Client {
  getObject(
    input: Named,
    options?: SendOptions,
  ): Promise<{
    readonly Body?: { transformToByteArray(): Promise<Uint8Array> } | undefined
    readonly ETag?: string | undefined
  }>
  putObject(
    input: Named & {
      readonly Body: string | Uint8Array
      readonly ContentType?: string
      readonly IfMatch?: string
      readonly IfNoneMatch?: string
    },
    options?: SendOptions,
  ): Promise<{ readonly ETag?: string | undefined }>
  deleteObject(input: Named, options?: SendOptions): Promise<unknown>
  listObjectsV2(
    input: {
      readonly Bucket: string
      readonly Prefix: string
      readonly ContinuationToken?: string
    },
    options?: SendOptions,
  ): Promise<Page>
}

/** The client needs the right to list the bucket: without it, S3 answers 403 for an object that does not exist. */
export function s3Store(client: S3Client, bucket: string): ObjectStore {
  const methods = ['getObject', 'putObject', 'deleteObject', 'listObjectsV2']
  checkMethods('client', client, methods, 'new S3({ … }) of @aws-sdk/client-s3; S3Client will not do')
  const Bucket = checkText('bucket', bucket, limits.nameBytes)
  return {
    get(Key, { signal } = {}) {
      return ask(
        async () => {
          const { Body, ETag = '' } = await client.getObject({ Bucket, Key }, given({ abortSignal: signal }))
          return { body: (await Body?.transformToByteArray()) ?? new Uint8Array(), etag: unquoted(ETag) }
        },
        isAbsent,
        'not-applied',
      )
    },
    put(Key, Body, { ifMatch, ifNoneMatch, contentType, signal } = {}) {
      const conditions = given({ ContentType: contentType, IfMatch: ifMatch, IfNoneMatch: ifNoneMatch })
      return ask(async () => {
        const { ETag = '' } = await client.putObject(
          { Bucket, Key, Body, ...conditions },
          given({ abortSignal: signal }),
        )
        return unquoted(ETag)
      }, isRefusedWrite)
    },
    async delete(Key, { signal } = {}) {
      await ask(() => client.deleteObject({ Bucket, Key }, given({ abortSignal: signal })), isAbsent)
    },
    async *list(Prefix, { signal } = {}) {
      for (
        let ContinuationToken: string | undefined, isFirst = true;
        isFirst || ContinuationToken;
        isFirst = false
      ) {
        const input = { Bucket, Prefix, ...given({ ContinuationToken }) }
        const read = () => client.listObjectsV2(input, given({ abortSignal: signal }))
        const page = await ask(read, undefined, 'not-applied')
        for (const { Key } of page?.Contents ?? []) if (Key !== undefined) yield Key
        ContinuationToken = page?.NextContinuationToken
      }
    },
  }
}

/** Ceph takes an ETag only without its quotes. S3 takes both. */
function unquoted(etag: string): string {
  return etag.replace(/^"(.*)"$/, '$1')
}

interface SdkError {
  readonly name?: string
  readonly $metadata?: { readonly httpStatusCode?: number; readonly attempts?: number }
}

const ask = askingOf('s3', (error) => {
  const { name, $metadata: { httpStatusCode, attempts = 1 } = {} } = (error ?? {}) as SdkError
  return { status: httpStatusCode, code: name, isRepeated: attempts > 1 }
})
