/**
 * Read and write for `optimisticUpdate`, for a key in etcd.
 *
 * ```ts
 * const stock = etcdPair({ hosts: ['http://10.0.0.1:2379'] }, 'stock/42')
 * await optimisticUpdate(stock.read, (row) => stock.write(row, String(Number(row.value) - 1)))
 * ```
 *
 * The version is the revision of the key's last write, which never comes back. An answer that is lost is an error and never a second
 * try: the next read would find what this write has left, and change it twice.
 */
import { callWith } from '../../../base/aborting.ts'
import { type Clock, systemClock } from '../../../base/clock.ts'
import { defaults, limits } from '../../../base/defaults.ts'
import { InvalidArgumentError } from '../../../base/errors.ts'
import { checkText } from '../../../base/names.ts'
import { checkInteger, checkKnownOptions } from '../../../base/options.ts'
import { withLimit } from '../../../base/within.ts'
import * as etcd from '../client/index.ts'

export type { EtcdClientOptions, EtcdTls } from '../client/index.ts'

export interface EtcdRow {
  readonly value: string
  readonly revision: number
}

export interface EtcdPair extends AsyncDisposable {
  /** Null if there is no such key. */
  read(): Promise<EtcdRow | null>
  /** False if the key was written or deleted since it was read. */
  write(row: EtcdRow, value: string): Promise<boolean>
  close(): Promise<void>
}

export interface EtcdPairOptions extends etcd.EtcdClientOptions {
  /** For each request. Default 5,000. */
  readonly callTimeoutMs?: number
  readonly clock?: Clock
}

const knownOptions = ['hosts', 'tls', 'username', 'password', 'callTimeoutMs', 'clock']

export function etcdPair(options: EtcdPairOptions, key: string): EtcdPair {
  checkKnownOptions('etcdPair options', options, knownOptions)
  checkText('key', key, limits.keyBytes)
  const { clock = systemClock } = options
  const limitMs = checkInteger('callTimeoutMs', options.callTimeoutMs ?? defaults.callTimeoutMs, { min: 1 })
  const client = new etcd.EtcdClient('etcd', options, clock)
  const ask = (request: etcd.TxnRequest) =>
    withLimit(clock, limitMs, ({ signal }) => client.ask(etcd.methods.txn, request, callWith(signal)), {
      keepsProcessAlive: true,
    })
  const close = async () => client.close()
  return {
    async read() {
      const [found] = etcd.kvsOf(await ask(etcd.always([etcd.get(key)])))
      return found === undefined ? null : { value: found.value, revision: found.mod_revision }
    },
    async write({ revision }, value) {
      if (typeof value !== 'string')
        throw new InvalidArgumentError('value', `must be a string, not ${typeof value}.`)
      const { succeeded } = await ask(etcd.onCondition([etcd.written(key, revision)], [etcd.put(key, value)]))
      return succeeded
    },
    close,
    [Symbol.asyncDispose]: close,
  }
}
