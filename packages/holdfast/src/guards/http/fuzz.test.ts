/** Random headers and bodies. `npm run fuzz` sends 100,000; HOLDFAST_MODEL_SEED repeats a run. */
import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { createStock, fenceOf, key, serveStock, signedText } from '../../../test/http/guarded-stock.ts'
import { newSeed } from '../../../test/seed.ts'
import { formatFence } from '../../base/fence-text.ts'
import { seededRandom } from '../../testing/seeded-random.ts'
import { fencedWeb, problemOf, readFence } from '../http.ts'

const REQUESTS = Number(process.env.HOLDFAST_FUZZ ?? 20_000)
const refusals = new Set([400, 403, 409, 428])
const skus = ['42', '7', 'a b', 'ü', '..', 'x'.repeat(300)]

interface Sent {
  readonly method: string
  readonly sku: string
  readonly headers: Record<string, string>
  readonly body: string
  /** The token of a fence that is genuine and for this name; null if nothing here may pass. */
  readonly token: bigint | null
}

class Fuzzer {
  readonly #random
  /** The newest token that passed, and the units that should be stored, for each name. */
  readonly current = new Map<string, bigint>()
  readonly units = new Map<string, string>()
  valid = 0
  passed = 0

  constructor(seed: number) {
    this.#random = seededRandom(seed)
  }

  next(): Sent {
    const sku = this.#oneOf(skus)
    const method = this.#oneOf(['PUT', 'GET'])
    const body = this.#text(this.#below(40), 0x20, 0x2fff)
    const token = (this.current.get(sku) ?? 5n) + BigInt(this.#below(5) - 2)
    const genuine = token > 0n && sku !== '..' && sku.length < 200
    const name = `sku:${sku}`
    const text = genuine ? signedText(token, { name }) : signedText(5n)
    const sent = (headers: Record<string, string>, isGenuine = false): Sent => ({
      method,
      sku,
      headers,
      body,
      token: isGenuine && genuine ? token : null,
    })
    const fence = (value: string) => sent({ 'holdfast-fence': value })
    switch (this.#below(8)) {
      case 0:
      case 1:
        return sent({ 'holdfast-fence': text }, true)
      case 2:
        return fence(signedText(token > 0n ? token : 1n, { name: this.#oneOf(['sku:8', 'sku', 'n']) }))
      case 3:
        return fence(this.#mutated(text))
      case 4:
        return fence(genuine ? formatFence(fenceOf(token, { name })) : 'hf1/////')
      case 5:
        return sent({ 'holdfast-fence': text, 'x-fencing-token': this.#text(this.#below(4), 0x20, 0x7e) })
      case 6:
        return sent(this.#below(2) === 0 ? {} : { 'x-fencing-token': `${token}` })
      default:
        return fence(this.#text(this.#below(120), 0x20, 0xff))
    }
  }

  check({ method, sku, headers, body, token }: Sent, status: number, answer: string): void {
    const current = this.current.get(sku)
    const passes = token !== null && (current === undefined || token >= current)
    if (token !== null) this.valid++
    assert.ok(status === 200 || refusals.has(status), `status ${status}`)
    assert.equal(status === 200, passes, `${status} for token ${token} after ${current}`)
    for (const secret of Object.values(headers)) if (secret.length > 8) assert.ok(!answer.includes(secret))
    if (!passes) return void assert.doesNotMatch(answer, /hf1|stack|node_modules|g\d/)
    this.passed++
    if (token !== null) this.current.set(sku, token)
    if (method === 'PUT') this.units.set(sku, body)
  }

  #mutated(text: string): string {
    const at = this.#below(text.length)
    const changed = [
      text.slice(0, at),
      `${text.slice(0, at)}${this.#text(1, 0x21, 0x7e)}${text.slice(at + 1)}`,
      `${text}, ${text}`,
      `${text}/`,
      text.replace('exclusive', 'shared'),
      text.replace(/\/\d+\//, '/9999/'),
    ]
    const mutated = this.#oneOf(changed)
    return mutated === text ? `${text}x` : mutated
  }

  #text(length: number, from: number, to: number): string {
    const characters = Array.from({ length }, () => String.fromCharCode(from + this.#below(to - from + 1)))
    // A header may not have DEL or C1 characters, and loses blanks at its ends.
    return characters.join('').replace(/[\x7f-\x9f]/g, '~')
  }

  #oneOf<T>(values: readonly T[]): T {
    return values[this.#below(values.length)] as T
  }

  #below(limit: number): number {
    return Math.floor(this.#random.fraction() * limit)
  }
}

describe('random requests', () => {
  test(`${REQUESTS} headers and bodies: a genuine fence passes exactly when it is current, and nothing else does`, async () => {
    const seed = newSeed()
    console.log(`  ${REQUESTS} random requests, seed ${seed}`)
    const stock = createStock()
    const fuzzer = new Fuzzer(seed)
    const handle = fencedWeb(
      {
        guard: stock.guard,
        keys: [key],
        name: ({ url }) => `sku:${decodeURIComponent(url.split('/')[4] ?? '')}`,
      },
      async (request, { fence }) => {
        const sku = decodeURIComponent(request.url.split('/')[4] ?? '')
        if (request.method === 'PUT') await stock.write(fence, sku, await request.text())
        return new Response(stock.units(sku) ?? 'none')
      },
    )
    for (let sent = 0; sent < REQUESTS; sent++) {
      const each = fuzzer.next()
      const { method, sku, headers, body } = each
      // The URL would lose a segment of dots.
      const path = sku === '..' ? '%2e%2e%20' : encodeURIComponent(sku)
      const response = await handle(
        new Request(`http://stock/stock/${path}`, { method, headers, ...(method === 'PUT' && { body }) }),
      )
      fuzzer.check(each, response.status, await response.text())
    }
    for (const [sku, units] of fuzzer.units) assert.equal(stock.units(sku), units.toWellFormed())
    assert.ok(fuzzer.valid >= REQUESTS / 10, `only ${fuzzer.valid} valid fences`)
    assert.ok(fuzzer.passed > REQUESTS / 20)
    assert.ok(fuzzer.passed < fuzzer.valid)
  })

  test('on a socket: 1,000 requests are answered, and the service still answers', async () => {
    const seed = newSeed()
    const stock = createStock()
    await using service = await serveStock('node', stock)
    const fuzzer = new Fuzzer(seed)
    const send = async (each: Sent) => {
      const path = each.sku === '..' ? '%2e%2e%20' : encodeURIComponent(each.sku)
      const { method, headers } = each
      const init = { method, headers }
      const response = await fetch(
        `${service.url}/stock/${path}`,
        method === 'PUT' ? { ...init, body: each.body } : init,
      )
      await response.text()
      assert.ok(response.status === 200 || refusals.has(response.status), `seed ${seed}: ${response.status}`)
    }
    for (let batch = 0; batch < 50; batch++)
      await Promise.all(Array.from({ length: 20 }, () => send(fuzzer.next())))
    const last = signedText(2n ** 62n)
    const response = await fetch(`${service.url}/stock/42`, {
      method: 'PUT',
      headers: { 'holdfast-fence': last },
    })
    assert.equal(response.status, 200)
  })

  test('any header at all is a fence or a problem', () => {
    const seed = newSeed()
    console.log(`  5,000 random headers, seed ${seed}`)
    const random = seededRandom(seed)
    const plain = { unsigned: true, plainToken: { issuer: 'stock' } } as const
    for (let run = 0; run < 5_000; run++) {
      const characters = Array.from({ length: Math.floor(random.fraction() * 30) }, () =>
        String.fromCharCode(Math.floor(random.fraction() ** 4 * 0xffff)),
      )
      const name = random.fraction() < 0.5 ? 'n' : characters.toReversed().join('')
      const digits = `${Math.floor(random.fraction() * 10)}`.repeat(Math.ceil(random.fraction() * 21))
      const header = random.fraction() < 0.5 ? 'holdfast-fence' : 'x-fencing-token'
      try {
        const fence = readFence(
          { [header]: random.fraction() < 0.5 ? digits : characters.join('') },
          { ...plain, name },
        )
        assert.equal(fence.name, name, `seed ${seed}`)
      } catch (error) {
        assert.notEqual(problemOf(error), null, `seed ${seed}: ${error}`)
      }
    }
  })
})
