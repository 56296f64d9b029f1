/** Object stores on real servers, each with a bucket or container of its own. */
import { S3 } from '@aws-sdk/client-s3'
import { ContainerClient, StorageSharedKeyCredential } from '@azure/storage-blob'
import { azureStore, type ObjectStore, s3Store } from '../../src/guards/object.ts'

export const storeNames = ['s3', 'azure'] as const
export type StoreName = (typeof storeNames)[number]

export const engineOfStore = { s3: 'radosgw', azure: 'azurite' } as const

interface Bucket {
  readonly store: ObjectStore
  create(): Promise<unknown>
}

/** A bucket or container by its name, at a server whose URL has the credentials. */
export function bucketOf(name: StoreName, url: string, bucket: string): Bucket {
  const { host, pathname, username, password } = new URL(url)
  const secret = decodeURIComponent(password)
  if (name === 's3') {
    const credentials = { accessKeyId: username, secretAccessKey: secret }
    const client = new S3({
      endpoint: `http://${host}`,
      region: 'us-east-1',
      forcePathStyle: true,
      credentials,
    })
    return { store: s3Store(client, bucket), create: () => client.createBucket({ Bucket: bucket }) }
  }
  const credential = new StorageSharedKeyCredential(username, secret)
  const container = new ContainerClient(`http://${host}${pathname}/${bucket}`, credential)
  return { store: azureStore(container), create: () => container.create() }
}
