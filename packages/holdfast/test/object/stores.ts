/** Object stores on real servers, each with a bucket or container of its own. */
import { S3 } from '@aws-sdk/client-s3'
import { ContainerClient, StorageSharedKeyCredential } from '@azure/storage-blob'
import { reach } from 'holdfast-lab/servers'
import { azureStore, type ObjectStore, s3Store } from '../../src/guards/object.ts'

export interface OpenedStore {
  /** For clients of a process of their own. */
  readonly url: string
  readonly store: ObjectStore
  /** In a bucket or container that does not exist. */
  readonly elsewhere: ObjectStore
  close(): Promise<void>
}

export const storeNames = ['s3', 'azure'] as const
export type StoreName = (typeof storeNames)[number]

export const engineOfStore = { s3: 'radosgw', azure: 'azurite' } as const

let buckets = 0

export async function openStore(name: StoreName): Promise<OpenedStore> {
  const server = await reach(engineOfStore[name])
  const { url } = server
  const bucket = `holdfast-${process.pid}-${++buckets}`
  return { url, ...(await (name === 's3' ? openS3 : openAzure)(url, bucket)), close: () => server.stop() }
}

export function s3Of(url: string): S3 {
  const { host, username, password } = new URL(url)
  const credentials = { accessKeyId: username, secretAccessKey: password }
  return new S3({ endpoint: `http://${host}`, region: 'us-east-1', forcePathStyle: true, credentials })
}

async function openS3(url: string, bucket: string) {
  const client = s3Of(url)
  await client.createBucket({ Bucket: bucket })
  return { store: s3Store(client, bucket), elsewhere: s3Store(client, 'missing') }
}

async function openAzure(url: string, name: string) {
  const { host, pathname, username, password } = new URL(url)
  const credential = new StorageSharedKeyCredential(username, decodeURIComponent(password))
  const containerOf = (each: string) => new ContainerClient(`http://${host}${pathname}/${each}`, credential)
  await containerOf(name).create()
  return { store: azureStore(containerOf(name)), elsewhere: azureStore(containerOf('missing')) }
}
