/** A client for an ensemble of ZooKeeper. */
import type { SecureContextOptions } from 'node:tls'
import type { Clock } from '../../../base/clock.ts'
import type { Random } from '../../../base/ids.ts'
import type { Call } from '../../../spi.ts'
import type { Session } from './session.ts'

/** Certificates, as `node:tls` takes them. */
export interface ZooKeeperTls extends Pick<SecureContextOptions, 'ca' | 'cert' | 'key' | 'passphrase'> {
  /** The name in the server's certificate, where it differs from the host. */
  readonly servername?: string
}

export interface ZooKeeperClientOptions {
  /** `host:port`. */
  readonly hosts: readonly string[]
  /** `/a/b`, or nothing. */
  readonly chroot?: string
  readonly username?: string
  readonly password?: string
  /** `creator` (default): only who has the same credentials may use the nodes. `open`: everybody may. */
  readonly acl?: 'creator' | 'open'
  readonly tls?: ZooKeeperTls
}

const notYet = (): never => {
  throw new Error('not yet')
}

export class ZooKeeperClient {
  readonly backend: string
  /** '' or `/a/b`. */
  readonly chroot: string

  constructor(backend: string, options: ZooKeeperClientOptions, _clock: Clock, _random: Random) {
    this.backend = backend
    this.chroot = options.chroot ?? ''
  }

  open(_timeoutMs: number, _call: Call): Promise<Session> {
    return notYet()
  }

  /** Null: the session has gone. */
  attach(_id: bigint, _timeoutMs: number, _call: Call): Promise<Session | null> {
    return notYet()
  }

  /** The bounds of session time-outs at the member that answers. */
  negotiated(_call: Call): Promise<{ readonly minMs: number; readonly maxMs: number }> {
    return notYet()
  }

  /** The one session without claims, kept alive by pings. Ask for it before each use: it may have gone. */
  shared(_call: Call): Promise<Session> {
    return notYet()
  }

  /** Creates what is missing of it, as persistent nodes: the chroot, too. */
  makePath(_path: string, _call: Call): Promise<void> {
    return notYet()
  }

  /** Closes all connections. Sessions live on until their time is up, but for the shared one. */
  close(): void {
    notYet()
  }
}
