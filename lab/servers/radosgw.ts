import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { globSync, mkdirSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { promisify } from 'node:util'
import { need, programOf, unpacked } from '../obtain/find.ts'
import { type Cluster, clusterOf, orStop } from './cluster.ts'
import { claimPorts, host } from './ports.ts'
import { newFolder } from './run.ts'
import { type Server, startServer } from './server.ts'
import { waitFor } from './wait.ts'

export interface Radosgw extends Cluster {
  /** Speaks S3. The others are its storage: a monitor, and a daemon that keeps objects in memory. */
  readonly gateway: Server
}

const credentials = { accessKey: 'holdfast', secretKey: 'a-key-for-tests-on-loopback' }

/** S3 by Ceph's gateway. The access key and its secret stand in the URL. Objects end with the storage daemon, if it is killed. */
export async function startRadosgw(): Promise<Radosgw> {
  const [monitorPort = 0, storagePort = 0, port = 0] = await claimPorts(3)
  const folder = newFolder('ceph-mon')
  const settings = join(folder, 'ceph.conf')
  writeFileSync(settings, configuration(folder, monitorPort, port))
  await prepare(folder, settings, monitorPort)
  const given = ['-c', settings, '-f']
  const monitor = await startServer({
    name: 'ceph-mon',
    url: `tcp://${host}:${monitorPort}`,
    port: monitorPort,
    folder,
    program: program('ceph-mon'),
    arguments: [...given, '-i', 'a'],
    quit: 'SIGTERM',
    ready: async () => (await stateOf(folder, 'mon.a', 'mon_status')) === 'leader',
  })
  const storage = await orStop(monitor, startStorage(folder, storagePort, given))
  const behind = clusterOf('ceph', 'tcp', [storage, monitor])
  const gateway = await orStop(behind, startGateway(settings, port, given))
  return { ...clusterOf('radosgw', 'http', [gateway, storage, monitor]), url: gateway.url, gateway }
}

/** It listens on ports of its own choice, the first that are free from 6800 on; ours is only its name. */
function startStorage(folder: string, port: number, given: readonly string[]): Promise<Server> {
  return startServer({
    name: 'ceph-osd',
    url: `tcp://${host}:${port}`,
    port,
    folder: newFolder('ceph-osd'),
    program: program('ceph-osd'),
    arguments: [...given, '-i', '0'],
    quit: 'SIGTERM',
    ready: async () => (await stateOf(folder, 'osd.0', 'status')) === 'active',
  })
}

async function startGateway(settings: string, port: number, given: readonly string[]): Promise<Server> {
  const { accessKey, secretKey } = credentials
  await waitFor('a user of radosgw', () => createUser(settings))
  return startServer({
    name: 'radosgw',
    url: `http://${accessKey}:${secretKey}@${host}:${port}`,
    port,
    folder: newFolder('radosgw'),
    program: program('radosgw'),
    arguments: [...given, '-n', 'client.admin'],
    quit: 'SIGTERM',
    ready: async () => (await fetch(`http://${host}:${port}/`)).ok,
  })
}

/** An operation that it sends while the storage opens is sometimes answered only when it is sent again, so it has a limit. */
async function createUser(settings: string): Promise<boolean> {
  const { accessKey, secretKey } = credentials
  const user = ['--uid', 'holdfast', '--display-name', 'holdfast']
  const keys = ['--access-key', accessKey, '--secret-key', secretKey]
  try {
    await run('radosgw-admin', settings, ['-n', 'client.admin', 'user', 'create', ...user, ...keys])
  } catch (error) {
    if (!String((error as Error).message).includes('exists')) throw error
  }
  return true
}

async function prepare(folder: string, settings: string, monitorPort: number): Promise<void> {
  const [monitors, storages] = [join(folder, 'monmap'), join(folder, 'osdmap')]
  for (const part of ['mon', 'osd']) mkdirSync(join(folder, part))
  await run('monmaptool', settings, ['--create', '--addv', 'a', address(monitorPort), monitors])
  await run('osdmaptool', settings, ['--createsimple', '1', storages])
  await run('ceph-mon', settings, ['-i', 'a', '--mkfs', '--monmap', monitors, '--osdmap', storages])
  await run('ceph-osd', settings, ['-i', '0', '--mkfs', '--no-mon-config'])
}

async function run(name: string, settings: string, given: readonly string[]): Promise<void> {
  await promisify(execFile)(program(name), ['-c', settings, ...given], {
    timeout: 20_000,
    killSignal: 'SIGKILL',
  })
}

function program(name: string): string {
  return programOf(need('radosgw'), name)
}

function address(port: number): string {
  return `[v2:${host}:${port}/0]`
}

/** A daemon's own word on its state, asked over its socket: a length of four bytes, then JSON. */
async function stateOf(folder: string, name: string, command: string): Promise<unknown> {
  const socket = connect(join(folder, `${name}.asok`))
  socket.write(`${JSON.stringify({ prefix: command })}\0`)
  return JSON.parse((await text(socket)).slice(4)).state
}

function configuration(folder: string, monitorPort: number, port: number): string {
  const settings = {
    fsid: randomUUID(),
    'mon host': address(monitorPort),
    'public addr': host,
    'cluster addr': host,
    'auth cluster required': 'none',
    'auth service required': 'none',
    'auth client required': 'none',
    // Encryption needs keys, and there are none.
    ...Object.fromEntries(
      ['mon client', 'mon service', 'mon cluster', 'client'].map((who) => [`ms ${who} mode`, 'crc']),
    ),
    'run dir': folder,
    'admin socket': join(folder, '$name.asok'),
    'crash dir': folder,
    'log to file': false,
    'mon cluster log to file': false,
    'mon data': join(folder, 'mon'),
    // Each change of the cluster's maps waits for the next round: with the usual second a start takes 13 s.
    'paxos propose interval': 0.02,
    'paxos min wait': 0.01,
    'mon allow pool size one': true,
    'osd data': join(folder, 'osd'),
    'osd objectstore': 'memstore',
    'osd crush update on start': false,
    'osd crush chooseleaf type': 0,
    'osd pool default size': 1,
    'osd pool default pg num': 1,
    'osd pool default pg autoscale mode': 'off',
    ...plugins(),
    'rgw data': folder,
    'rgw enable apis': 's3',
    'rgw frontends': `beast endpoint=${host}:${port} tcp_nodelay=1`,
    'rgw thread pool size': 32,
  }
  const lines = Object.entries(settings).map(([key, value]) => `${key} = ${value}`)
  return ['[global]', ...lines, ''].join('\n')
}

/** Of programs that were unpacked: where the parts are that they load while they run. */
function plugins(): Record<string, string> {
  const [libraries] = globSync(join(unpacked, 'radosgw/usr/lib/*-linux-gnu'))
  if (libraries === undefined || !program('radosgw').startsWith(unpacked)) return {}
  return {
    'osd class dir': join(libraries, 'rados-classes'),
    'erasure code dir': join(libraries, 'ceph/erasure-code'),
    'plugin dir': join(libraries, 'ceph'),
  }
}
