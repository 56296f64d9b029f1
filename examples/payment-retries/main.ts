/**
 * Never charge twice: a client that hears nothing sends its payment again, ten times, to two processes of a web server.
 *
 *     node examples/payment-retries/main.ts
 */
import { runExample } from '../support/example.ts'
import { Provider } from './provider.ts'
import { type Answer, type Payment, WebServer } from './servers.ts'

const retries = 10

await runExample({
  name: 'payment-retries',
  about: `A payment is sent ten times at once, to two processes of a web server. Without protection it is charged ten times;
with an idempotency key once, and everybody gets the same receipt. A process that dies when the money has moved is
taken over from, and the money moves once; so it does when our own books fail after the charge, and the client tries
again. The same key with another amount is refused.`,
  async play({ url, pool, say, check, mustLose }) {
    await pool.query(Provider.tables)
    await pool.query('CREATE TABLE payments (order_id text, cents int, charge text)')
    using first = await WebServer.start(url)
    using second = await WebServer.start(url)

    function sendTenTimes(payment: Payment): Promise<Answer[]> {
      const balanced = Array.from({ length: retries }, (_, index) => (index % 2 === 0 ? first : second))
      return Promise.all(balanced.map((server) => server.send(payment)))
    }

    async function crashAndSendAgain(payment: Payment): Promise<Answer> {
      using third = await WebServer.start(url)
      await third.sendAndCrash(payment)
      return first.send(payment)
    }

    /** The money moves, and then our own database fails. */
    async function failAndSendAgain(payment: Payment): Promise<Answer[]> {
      await pool.query('ALTER TABLE payments RENAME TO payments_out_of_order')
      const failed = await first.send(payment)
      await pool.query('ALTER TABLE payments_out_of_order RENAME TO payments')
      return [failed, await second.send(payment)]
    }

    /** How often the provider has charged for a key, and how often it is in our books. */
    async function count(payment: Payment) {
      const { rows } = await pool.query<{ charged: number; booked: number }>(
        `SELECT (SELECT count(*)::int FROM provider.charges WHERE reference = $1) AS charged,
                (SELECT count(*)::int FROM payments WHERE order_id = $2) AS booked`,
        [payment.key, payment.order.id],
      )
      return rows[0] ?? { charged: 0, booked: 0 }
    }

    say('A payment is sent ten times at once, to two processes of a web server.')
    const naive = { how: 'naively', key: 'key-1', order: { id: 'order-1', cents: 4200 } } as const
    await sendTenTimes(naive)
    const { charged } = await count(naive)
    mustLose(`without protection it is charged ${charged} times`, charged > 1)

    const payment = { how: 'once', key: 'key-2', order: { id: 'order-2', cents: 4200 } } as const
    const answers = await sendTenTimes(payment)
    const receipts = new Set(
      answers.map((answer) => JSON.stringify(answer.kind === 'paid' && answer.receipt)),
    )
    const counted = await count(payment)
    check(`with an idempotency key it is charged ${counted.charged} time`, counted.charged === 1)
    check(`it is in our books ${counted.booked} time`, counted.booked === 1)
    check(`all ${answers.length} get the same receipt`, receipts.size === 1 && !receipts.has('false'))

    say('\nLater the client asks again.')
    const later = await second.send(payment)
    check(
      'it gets the same receipt, and nothing is charged',
      later.kind === 'paid' &&
        receipts.has(JSON.stringify(later.receipt)) &&
        (await count(payment)).charged === 1,
    )

    say('\nThe client uses the same key for another amount.')
    const other = await first.send({ ...payment, order: { id: 'order-2', cents: 9900 } })
    check(
      `refused (${other.kind === 'refused' ? other.code : 'not at all'}), and nothing is charged`,
      other.kind === 'refused' && other.code === 'KEY_REUSED' && (await count(payment)).charged === 1,
    )

    say(
      '\nThe process dies when the money has moved, before it has noted anything. The client asks another one.',
    )
    const careless = { how: 'without looking', key: 'key-3', order: { id: 'order-3', cents: 4200 } } as const
    await crashAndSendAgain(careless)
    const twice = await count(careless)
    mustLose(`a takeover that does not look charges ${twice.charged} times`, twice.charged > 1)

    const interrupted = { how: 'once', key: 'key-4', order: { id: 'order-4', cents: 4200 } } as const
    const recovered = await crashAndSendAgain(interrupted)
    const { charged: chargedOnce, booked } = await count(interrupted)
    check(
      `a takeover that looks first charges ${chargedOnce} time, and books it ${booked} time`,
      recovered.kind === 'paid' && chargedOnce === 1 && booked === 1,
    )

    say(
      '\nThe money has moved, and then our own books fail. The client hears of it, and sends the payment again.',
    )
    const rash = { how: 'without looking', key: 'key-5', order: { id: 'order-5', cents: 4200 } } as const
    await failAndSendAgain(rash)
    const again = await count(rash)
    mustLose(`a second try that does not look charges ${again.charged} times`, again.charged > 1)

    const unbooked = { how: 'once', key: 'key-6', order: { id: 'order-6', cents: 4200 } } as const
    const [failed, retried] = await failAndSendAgain(unbooked)
    const settled = await count(unbooked)
    check(
      `a second try that looks first charges ${settled.charged} time, and books it ${settled.booked} time`,
      failed?.kind === 'failed' && retried?.kind === 'paid' && settled.charged === 1 && settled.booked === 1,
    )
  },
})
