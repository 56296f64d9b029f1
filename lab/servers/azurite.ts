import { need } from '../obtain/find.ts'
import { claimPort, host } from './ports.ts'
import { newFolder } from './run.ts'
import { type Server, startServer } from './server.ts'

const account = 'holdfast'
const key = Buffer.from('a key for tests on loopback').toString('base64')

/** Azure's blobs. The account and its key stand in the URL. */
export async function startAzurite(): Promise<Server> {
  const port = await claimPort()
  const folder = newFolder('azurite')
  return startServer({
    name: 'azurite',
    url: `http://${account}:${encodeURIComponent(key)}@${host}:${port}/${account}`,
    port,
    folder,
    program: need('azurite').path,
    arguments: [
      ...['--blobHost', host, '--blobPort', String(port), '--location', folder],
      // It reports its use to its makers otherwise.
      '--disableTelemetry',
      '--silent',
      // Clients are newer than the version of the interface that it knows.
      '--skipApiVersionCheck',
    ],
    environment: { AZURITE_ACCOUNTS: `${account}:${key}` },
    quit: 'SIGTERM',
    // Without a signature it refuses, and that is an answer.
    ready: async () => (await fetch(`http://${host}:${port}/${account}?comp=list`)).status === 403,
  })
}
