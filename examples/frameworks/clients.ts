/** Clients that send one order after another, until an answer is not 200. */

export interface Answer {
  readonly customer: string
  /** The HTTP status; 0 if there was no answer. */
  readonly status: number
  readonly text: string
}

export function startClients(port: number, count: number) {
  const answers: Answer[] = []
  const { promise: busy, resolve } = Promise.withResolvers<void>()
  async function send(customer: string): Promise<void> {
    for (;;) {
      const answer = await order(port, customer)
      answers.push(answer)
      if (answers.length === count) resolve()
      if (answer.status !== 200) return
    }
  }
  // Five clients for each customer: one of them is served, and four wait for its name.
  const sent = Array.from({ length: count }, (_, index) =>
    send(index === 0 ? 'slow' : `${index % (count / 5)}`),
  )
  return { busy, answers: Promise.all(sent).then(() => answers) }
}

async function order(port: number, customer: string): Promise<Answer> {
  try {
    const response = await fetch(`http://127.0.0.1:${port}/orders/${customer}`, { method: 'POST' })
    return { customer, status: response.status, text: await response.text() }
  } catch (error) {
    return { customer, status: 0, text: String((error as Error).cause) }
  }
}
