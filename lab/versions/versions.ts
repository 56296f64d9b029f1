// Every version that `npm run test:versions` plays suites with: where it comes from, and which suites.

import { libraryPath as library } from '../../scripts/lib/repository.ts'
import type { Engine } from '../obtain/engines.ts'

export interface Version {
  /** On the command line, in the record, and as the folder into which it is unpacked. */
  readonly id: string
  readonly title: string
  readonly of: Engine | 'node' | 'clients'
  /** How the number of the version begins; a release of Debian may have moved on. */
  readonly number: string
  readonly debian?: DebianPackages
  /** A package of npm and its version. */
  readonly npm?: string
  /** As in `npm test -- --only`. */
  readonly only: string
  /** In words, for the record. */
  readonly suites: string
  /** Of their tests; the beginning of a name will do. */
  readonly paths: readonly string[]
}

export interface DebianPackages {
  readonly release: string
  readonly packages: readonly string[]
  /** Where the programs lie, or the Java archive. */
  readonly folder: string
  /** The program that the harness knows by another name. */
  readonly called?: Readonly<Record<string, string>>
}

function postgres(number: string, release: string, has: 'advisory locks' | 'no advisory locks'): Version {
  const advisory = has === 'advisory locks'
  return {
    id: `postgres-${number}`,
    title: `PostgreSQL ${number}`,
    of: 'postgres',
    number,
    debian: {
      release,
      packages: [`postgresql-${number}`],
      folder: `usr/lib/postgresql/${number}/bin`,
    },
    only: advisory ? 'postgres,postgres-advisory,pgbouncer' : 'postgres,pgbouncer',
    suites: advisory ? 'backend, advisory locks, guard, lock-free' : 'backend, guard, lock-free',
    paths: [
      `${library}/test/conformance/postgres`,
      `${library}/test/postgres/`,
      `${library}/src/engines/postgres/`,
    ],
  }
}

function redis(number: string, release: string, name: 'Redis' | 'Valkey' = 'Redis'): Version {
  const program = `${name.toLowerCase()}-server`
  return {
    id: `${name.toLowerCase()}-${number}`,
    title: `${name} ${number}`,
    of: 'redis',
    number,
    debian: { release, packages: [program], folder: 'usr/bin', called: { 'redis-server': program } },
    only: 'redis,redlock',
    suites: 'backend (also Cluster and Sentinel), Redlock, guard',
    paths: [
      `${library}/test/conformance/redis`,
      `${library}/test/conformance/redlock`,
      `${library}/src/engines/redis/`,
    ],
  }
}

function etcd(number: string, release: string): Version {
  return {
    id: `etcd-${number}`,
    title: `etcd ${number}`,
    of: 'etcd',
    number,
    debian: { release, packages: ['etcd-server', 'etcd-client'], folder: 'usr/bin' },
    only: 'etcd',
    suites: 'backend, guard, lock-free',
    paths: [`${library}/test/conformance/etcd`, `${library}/src/engines/etcd/`],
  }
}

function zookeeper(number: string, release: string): Version {
  return {
    id: `zookeeper-${number}`,
    title: `ZooKeeper ${number}`,
    of: 'zookeeper',
    number,
    debian: { release, packages: ['libzookeeper-java'], folder: 'usr/share/java' },
    only: 'zookeeper',
    suites: 'backend',
    paths: [`${library}/test/conformance/zookeeper`, `${library}/src/engines/zookeeper/`],
  }
}

function node(number: string): Version {
  return {
    id: `node-${number}`,
    title: `Node ${number}`,
    of: 'node',
    number,
    npm: `node-${process.platform}-${process.arch}@${number}`,
    only: 'memory,sqlite',
    suites: 'units, memory, SQLite, recipes, the build',
    paths: [
      `${library}/src/`,
      `${library}/test/conformance/`,
      `${library}/test/recipes/`,
      `${library}/test/sqlite/`,
      'scripts/checks/entry-points',
    ],
  }
}

export const versions: readonly Version[] = [
  postgres('13', 'bullseye', 'no advisory locks'),
  postgres('15', 'bookworm', 'advisory locks'),
  postgres('17', 'trixie', 'advisory locks'),
  postgres('18', 'sid', 'advisory locks'),
  redis('7.0', 'bookworm'),
  redis('8.0', 'trixie'),
  redis('8.1', 'trixie', 'Valkey'),
  redis('9', 'sid', 'Valkey'),
  {
    id: 'redis-clients',
    title: 'ioredis 5 and 6, node-redis 5 and 6',
    of: 'clients',
    number: '',
    only: 'redis',
    suites: 'conformance, whole with each',
    paths: [`${library}/test/conformance/redis`],
  },
  etcd('3.4', 'bookworm'),
  etcd('3.5.16', 'trixie'),
  etcd('3.5', 'sid'),
  zookeeper('3.8', 'bookworm'),
  zookeeper('3.9', 'trixie'),
  node('22'),
  node('24'),
  node('26'),
]
