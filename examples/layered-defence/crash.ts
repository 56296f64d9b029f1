/** A process of the desk that dies with two payouts in flight, after the bank's first transfer and before its second. */
import pg from 'pg'
import { openBank } from './bank.ts'
import { openDesk, type PayoutRequest } from './desk.ts'

const [url = '', requests = '[]'] = process.argv.slice(2)
const [transferred, waiting] = JSON.parse(requests) as [PayoutRequest, PayoutRequest]

const pool = new pg.Pool({ connectionString: url })
const bank = openBank(pool)
const never = new Promise<never>(() => {})
const isWaiting = Promise.withResolvers<void>()

const desk = await openDesk({
  pool,
  bank: {
    ...bank,
    async transfer(reference, seller, cents) {
      if (seller === waiting.seller) {
        isWaiting.resolve()
        return never
      }
      await bank.transfer(reference, seller, cents)
      await isWaiting.promise
      process.kill(process.pid, 'SIGKILL')
      return never
    },
  },
  checkRisk: async () => {},
  holder: 'a process that dies',
})
await Promise.all([desk.pay(transferred), desk.pay(waiting)])
