/** One process of the shop's web server, which gets its requests from the process that started it. */
import { isHoldfastError } from 'holdfast'
import type { IdempotentOptions } from 'holdfast/lockfree'
import pg from 'pg'
import { type Order, type Pay, payNaively, payOnce, payWithoutLooking, type Receipt } from './payments.ts'
import { type Charge, Provider } from './provider.ts'

export interface Request {
  readonly id: number
  readonly how: 'naively' | 'without looking' | 'once'
  readonly key: string
  readonly order: Order
  /** The process dies when the money has moved, and before it has noted anything. */
  readonly crash: boolean
}

export type Reply =
  | { readonly kind: 'ready' }
  | { readonly kind: 'paid'; readonly id: number; readonly receipt: Receipt }
  | { readonly kind: 'refused'; readonly id: number; readonly code: string }
  /** Something else went wrong, and the client may try again. */
  | { readonly kind: 'failed'; readonly id: number }

const pool = new pg.Pool({ connectionString: process.argv[2] ?? '' })

class FatalProvider extends Provider {
  override async charge(reference: string, cents: number): Promise<Charge> {
    await super.charge(reference, cents)
    process.kill(process.pid, 'SIGKILL')
    return new Promise(() => {})
  }
}

const waysToPay = (provider: Provider, options?: IdempotentOptions): Record<Request['how'], Pay> => ({
  naively: payNaively(pool, provider),
  'without looking': payWithoutLooking(pool, provider, options),
  once: payOnce(pool, provider, options),
})
const usual = waysToPay(new Provider(pool))
// The next caller has to wait for that long after the crash. By default it is 15 s; here the reader is watching.
const fatal = waysToPay(new FatalProvider(pool), { ttlMs: 1_000 })

async function serve({ id, how, key, order, crash }: Request): Promise<Reply> {
  const pay = (crash ? fatal : usual)[how]
  try {
    return { kind: 'paid', id, receipt: await pay(key, order) }
  } catch (error) {
    return isHoldfastError(error) ? { kind: 'refused', id, code: error.code } : { kind: 'failed', id }
  }
}

function reply(what: Reply): void {
  process.send?.(what)
}

process.on('disconnect', () => process.exit())
process.on('message', async (request: Request) => reply(await serve(request)))
reply({ kind: 'ready' })
