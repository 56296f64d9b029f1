/** Which member is asked, when a connection is left, and what others notice of a caller that gives up. */
import { beforeEach, describe, expect, test } from 'vitest'
import { callWith } from '../base/aborting.ts'
import { Cancellation } from '../base/cancellation.ts'
import { createFakeClock, type FakeClock } from '../testing/fake-clock.ts'
import { type MemberConnection, Members } from './members.ts'

class Link implements MemberConnection {
  readonly host: string
  isOpen = true
  answers = 0
  inFlight = 0
  isDestroyed = false

  constructor(host: string) {
    this.host = host
  }

  leave(): void {
    this.isOpen = false
  }

  destroy(): void {
    this.isOpen = false
    this.isDestroyed = true
  }
}

class Refused extends Error {}
const refuse = () => Promise.reject(new Refused('no leader'))

describe('the members of a cluster', () => {
  let clock: FakeClock
  let opened: string[]
  let open: (host: string) => Promise<Link>
  let members: Members<Link>
  beforeEach(() => {
    clock = createFakeClock()
    opened = []
    open = async (host) => new Link(host)
    members = new Members({
      backend: 'acme',
      hosts: ['a', 'b', 'c'],
      clock,
      open: (host) => {
        opened.push(host)
        return open(host)
      },
      notSent: (why) => new Error(why),
      isForAnotherMember: (error) => error instanceof Refused,
    })
  })
  const never = Number.POSITIVE_INFINITY
  const ask = <R>(work: (link: Link) => Promise<R>, untilMs = never) => members.ask(work, untilMs, callWith())

  test('callers share one connection, which is kept', async () => {
    const links = await Promise.all([members.connected(callWith()), members.connected(callWith())])
    expect(links[0]).toBe(links[1])
    expect(await members.connected(callWith())).toBe(members.current)
    expect(opened).toEqual(['a'])
  })

  test('members that cannot be reached are passed over, and each is tried once', async () => {
    open = async (host) => (host === 'c' ? new Link(host) : Promise.reject(new Error('down')))
    expect((await members.connected(callWith())).host).toBe('c')
    open = () => Promise.reject(new Error('down'))
    members.leave(members.current as Link)
    await expect(members.connected(callWith())).rejects.toThrow('down')
    expect(opened).toEqual(['a', 'b', 'c', 'a', 'b', 'c'])
    open = async (host) => new Link(host)
    expect((await members.connected(callWith())).host).toBe('a')
  })

  test('T98 a member that was silent is passed over for a while, so an election does not wait for it, unless there is no other', async () => {
    const stopped = new Set(['a'])
    open = (host) => {
      if (stopped.has(host)) clock.block(1_000)
      return Promise.reject(new Error('no leader'))
    }
    const round = async () => {
      opened.length = 0
      await expect(members.connected(callWith())).rejects.toThrow('no leader')
      return opened.toSorted().join('')
    }
    expect([await round(), await round(), await round()]).toEqual(['abc', 'bc', 'bc'])
    await clock.advance(3_000)
    expect(await round()).toBe('abc')
    stopped.add('b').add('c')
    expect([await round(), await round()]).toEqual(['bc', 'abc'])
  })

  test.each([2, 4, 6])('T101 %i failures that arrive together move on once', async (count) => {
    const together = Promise.withResolvers<void>()
    const asked = Array.from({ length: count }, () =>
      ask(async ({ host }) => {
        if (host !== 'a') return host
        await together.promise
        return refuse()
      }),
    )
    await clock.settle()
    together.resolve()
    expect(await Promise.all(asked)).toEqual(asked.map(() => 'b'))
    expect(opened).toEqual(['a', 'b'])
  })

  test('T102 a caller that gives up does not end the connecting of others', async () => {
    const { promise, resolve } = Promise.withResolvers<Link>()
    open = () => promise
    const given = new Cancellation()
    const gone = members.connected(given)
    const stays = members.connected(callWith())
    given.cancel(new Error('given up'))
    await expect(gone).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    const later = members.connected(callWith())
    resolve(new Link('a'))
    expect(await later).toBe(await stays)
    expect(opened).toEqual(['a'])
  })

  test('a request goes to another member only if it was certainly not applied, and to each one once', async () => {
    const lost = () => Promise.reject(new Error('the answer is lost'))
    await expect(ask(lost)).rejects.toThrow('lost')
    expect(members.current?.isOpen).toBe(true)
    await expect(ask(refuse)).rejects.toThrow('no leader')
    expect(opened).toEqual(['a', 'b', 'c'])
  })

  test('no other member is asked when the time is over', async () => {
    const late = ask(refuse, clock.monotonicMs())
    await expect(late).rejects.toThrow('no leader')
    expect(opened).toEqual(['a'])
  })

  test('a call that was given up neither asks another member nor leaves this one', async () => {
    const given = new Cancellation()
    const asked = members.ask(
      async () => {
        given.cancel(new Error('given up'))
        return refuse()
      },
      never,
      given,
    )
    await expect(asked).rejects.toThrow('no leader')
    expect([opened, members.current?.isOpen]).toEqual([['a'], true])
  })

  test('a connection that has closed is replaced, and one that is closed each time is told', async () => {
    const link = await members.connected(callWith())
    link.isOpen = false
    expect((await members.connected(callWith())).host).toBe('b')
    members.leave(members.current as Link)
    open = async (host) => Object.assign(new Link(host), { isOpen: false })
    await expect(members.connected(callWith())).rejects.toThrow('closes each connection at once')
  })

  describe('T96 a connection without an answer', () => {
    /** A request that is never answered, and was given up. */
    const giveUpAfter = async (ms: number, meanwhile: (link: Link) => void = () => {}) => {
      const link = await members.connected(callWith())
      const call = new Cancellation()
      let isCancelled = false
      const cancel = () => {
        isCancelled = true
      }
      const answer = new Promise(() => {})
      const asked = members.answered(link, () => ({ answer, cancel, pieces: () => 0 }), call)
      await clock.advance(ms)
      meanwhile(link)
      call.cancel(new Error('given up'))
      await expect(asked).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
      await new Promise((resolve) => setImmediate(resolve))
      expect(isCancelled).toBe(true)
      return link
    }

    test('is left when a request that has waited for long is given up', async () => {
      expect((await giveUpAfter(500)).isOpen).toBe(false)
      expect((await members.connected(callWith())).host).toBe('b')
    })

    test('is kept if the request was young, or another one was answered meanwhile', async () => {
      expect((await giveUpAfter(499)).isOpen).toBe(true)
      expect((await giveUpAfter(5_000, (link) => link.answers++)).isOpen).toBe(true)
    })

    test('is left after a silence, of which the asker is told, and the answer still counts', async () => {
      const link = await members.connected(callWith())
      const { promise: answer, resolve } = Promise.withResolvers<string>()
      let told = 0
      const pieces = 1
      const silence = { ms: 1_500, tell: () => told++ }
      const ask = () => ({ answer, cancel: () => {}, pieces: () => pieces })
      const asked = members.answered(link, ask, callWith(), silence)
      await clock.advance(1_500)
      // A piece of a large answer has come.
      expect([told, link.isOpen]).toEqual([0, true])
      await clock.advance(1_499)
      expect([told, link.isOpen]).toEqual([0, true])
      await clock.advance(1)
      expect([told, link.isOpen]).toEqual([1, false])
      resolve('late')
      expect(await asked).toBe('late')
      expect(clock.pendingTimers).toBe(0)
    })
  })

  test('T96 close also ends connections that were left', async () => {
    const left = await members.connected(callWith())
    left.inFlight = 1
    members.leave(left)
    const current = await members.connected(callWith())
    members.close()
    expect([left.isDestroyed, current.isDestroyed]).toEqual([true, true])
  })

  test('after close nothing is connected, and a connection that was being made is destroyed', async () => {
    const { promise, resolve } = Promise.withResolvers<Link>()
    open = () => promise
    const connecting = members.connected(callWith())
    members.close()
    const link = new Link('a')
    resolve(link)
    await expect(connecting).rejects.toThrow('the client is closed')
    expect(link.isDestroyed).toBe(true)
    await expect(members.connected(callWith())).rejects.toThrow('the client is closed')
    expect(opened).toEqual(['a'])
  })
})
