// Programs that the lab needs from the outside: the servers, and three tools. One table, so that the finder, the installer
// and the sentence that tells a person what to install cannot disagree.

export const engines = [
  'redis',
  'etcd',
  'zookeeper',
  'postgres',
  'pgbouncer',
  'consul',
  'azurite',
  'radosgw',
] as const
export const tools = ['gcc', 'prometheus', 'spin'] as const

export type Engine = (typeof engines)[number]
export type Tool = (typeof tools)[number]
export type Needed = Engine | Tool

export interface Recipe {
  /** All of these must be there; the first one is the program itself. */
  readonly programs: readonly string[]
  /** Where distributions put it when not on `PATH`; `*` stands for one folder, and the highest wins. */
  readonly alsoIn?: readonly string[]
  /** For a program that is a Java archive. */
  readonly jar?: string
  readonly debian: readonly string[]
  /** A Debian release that still has the package when the machine's own does not. */
  readonly olderDebian?: string
  /** The packages and all that they need are unpacked into a folder and not installed: they bring users and services. */
  readonly isUnpacked?: boolean
  /** A package of npm and its exact version, instead of one of Debian. */
  readonly npm?: string
  readonly versionArguments: readonly string[]
}

export const recipes: Readonly<Record<Needed, Recipe>> = {
  redis: { programs: ['redis-server'], debian: ['redis-server'], versionArguments: ['--version'] },
  etcd: {
    programs: ['etcd', 'etcdctl'],
    debian: ['etcd-server', 'etcd-client'],
    versionArguments: ['--version'],
  },
  zookeeper: {
    programs: ['java'],
    jar: '/usr/share/java/zookeeper.jar',
    debian: ['zookeeper'],
    versionArguments: [],
  },
  postgres: {
    programs: ['postgres', 'initdb', 'psql'],
    alsoIn: ['/usr/lib/postgresql/*/bin'],
    debian: ['postgresql-15'],
    versionArguments: ['--version'],
  },
  pgbouncer: { programs: ['pgbouncer'], debian: ['pgbouncer'], versionArguments: ['--version'] },
  consul: {
    programs: ['consul'],
    debian: ['consul'],
    olderDebian: 'bullseye',
    versionArguments: ['version'],
  },
  // 3.37.0 does not install.
  azurite: {
    programs: ['azurite-blob'],
    debian: [],
    npm: 'azurite@3.36.0',
    versionArguments: ['--version'],
  },
  radosgw: {
    programs: ['radosgw', 'radosgw-admin', 'ceph-mon', 'ceph-osd', 'monmaptool', 'osdmaptool'],
    debian: ['radosgw', 'ceph-mon', 'ceph-osd'],
    isUnpacked: true,
    versionArguments: ['--version'],
  },
  gcc: { programs: ['gcc'], debian: ['gcc', 'libc6-dev'], versionArguments: ['--version'] },
  prometheus: {
    programs: ['promtool', 'prometheus'],
    debian: ['prometheus'],
    versionArguments: ['--version'],
  },
  spin: { programs: ['spin'], debian: ['spin'], versionArguments: ['-V'] },
}

/** The variable that names a server which runs already, and that a test may use but not break. */
export function addressVariable(engine: Engine): string {
  return `HOLDFAST_TEST_${engine.toUpperCase()}_URL`
}

/** The variable that names a folder with another version of the programs (of ZooKeeper: the archive), and then no other place counts. */
export function folderVariable(name: Needed): string {
  return `HOLDFAST_TEST_${name.toUpperCase()}_BIN`
}

/** Names that a narrowed run may use without being an engine, and the engines that they stand on. */
const standsOn: Readonly<Record<string, readonly string[]>> = {
  redlock: ['redis'],
  pgbouncer: ['postgres', 'pgbouncer'],
}

/** Programs that a run needs: everything, or what the names of `--only` stand on. */
export function neededFor(only: string | undefined): Needed[] {
  const all: Needed[] = [...engines, ...tools]
  if (only === undefined || only === '') return all
  const named = new Set<string>(only.split(',').flatMap((name) => standsOn[name] ?? [name]))
  // The clock shim is compiled for whichever server is there.
  if (engines.some((engine) => named.has(engine))) named.add('gcc')
  return all.filter((name) => named.has(name))
}

export function isNeeded(name: string): name is Needed {
  return name in recipes
}
