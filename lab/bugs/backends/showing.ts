/** Faults of what is said, shown, named, kept, and left behind. */

import { callWith } from '../../../packages/holdfast/src/base/aborting.ts'
import { isHoldfastError } from '../../../packages/holdfast/src/base/errors.ts'
import { memory } from '../../../packages/holdfast/src/engines/memory/index.ts'
import { listAll } from '../../../packages/holdfast/src/kit/backend-kit.ts'
import { WATCHED_FOR_MS } from '../../../packages/holdfast/src/kit/follow-log.ts'
import type { Backend, Call, NameState, SessionState } from '../../../packages/holdfast/src/spi.ts'
import { replace } from '../../../packages/holdfast/src/testing/conformance/wrapping.ts'
import { type AnySession, queueOf, regrant } from '../../../packages/holdfast/test/conformance/changing.ts'
import { tellsExpiriesAs } from '../../../packages/holdfast/test/conformance/consensus-like.ts'
import { memoryWorld } from '../../../packages/holdfast/test/conformance/memory-world.ts'
import type { BackendBug } from '../bug.ts'
import { broken, brokenBackend, brokenSession, brokenWorld } from './broken.ts'

const fresh = (): Call => callWith()

/** Every method that takes a call gets another one, or has its errors changed. */
function everyCall<T extends object>(
  inner: T,
  change: (run: (...args: unknown[]) => unknown) => (...args: unknown[]) => unknown,
): T {
  return new Proxy(inner, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key, target)
      const plain =
        typeof value !== 'function' || typeof key === 'symbol' || key === 'watch' || key === 'enqueue'
      return plain ? value : change((value as (...args: unknown[]) => unknown).bind(target))
    },
  })
}

/** Names are changed on the way to the engine; the caller is answered with the name that it asked for. */
function renamed(change: (name: string) => string): (backend: Backend<'fenced'>) => Backend<'fenced'> {
  const seen = new Map<string, string>()
  const to = (name: string) => {
    seen.set(change(name), name)
    return change(name)
  }
  const back = (state: NameState) => ({ ...state, name: seen.get(state.name) ?? state.name })
  return (backend) =>
    replace(backend, {
      session: (inner) => ({
        async tryAcquire(request, call) {
          const result = await inner.tryAcquire({ ...request, name: to(request.name) }, call)
          return result.kind === 'granted'
            ? { ...result, grant: { ...result.grant, name: request.name } }
            : result
        },
        release: (claim, options, call) => inner.release({ ...claim, name: to(claim.name) }, options, call),
      }),
      backend: (inner) => ({
        inspect: async (name, call) => {
          const state = await inner.inspect(to(name), call)
          return state && { ...back(state), name }
        },
        list: async (prefix, page, call) => {
          const { items, next } = await inner.list(prefix, page, call)
          return { items: items.map(back), next }
        },
      }),
    })
}

function listed(
  what: string,
  rules: string,
  change: (states: readonly NameState[], prefix: string) => readonly NameState[],
): BackendBug {
  return brokenBackend(what, rules, (inner) => ({
    list: async (prefix, _page, call) => ({
      items: change(await listAll(inner, '', call), prefix),
      next: null,
    }),
  }))
}

const like = (prefix: string) =>
  new RegExp(
    `^${prefix
      .replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
      .replaceAll('%', '.*')
      .replaceAll('_', '.')}`,
  )

export const showingBugs: readonly BackendBug[] = [
  brokenBackend('it declares another way of waiting than it has', 'C1', (inner) => ({
    info: { ...inner.info, waiting: 'poll' },
  })),
  brokenBackend('it declares no drift', 'C2', (inner) => ({ info: { ...inner.info, driftMs: () => 0 } })),
  brokenBackend('it assumes nothing', 'C3', (inner) => ({ info: { ...inner.info, assumptions: [] } })),
  brokenSession('it grants less than was asked for', 'C6 C61', (inner) => ({ ttlMs: inner.ttlMs / 2 })),
  brokenSession('a grant says another TTL than its session', 'C6 C57', (inner) =>
    regrant(inner, (grant) => ({ ...grant, ttlMs: grant.ttlMs * 2 })),
  ),
  brokenBackend('a force release always says that it released one', 'C144', (inner) => ({
    forceRelease: async (...args) => Math.max(1, await inner.forceRelease(...args)),
  })),
  broken('whole attempts are shown', 'C155 C157 C180 C187', () => {
    const attempts = new Map<string, string>()
    const whole = (id: string) => attempts.get(id) ?? id
    return (backend) =>
      replace(backend, {
        session: (inner) => ({
          tryAcquire(request, call) {
            attempts.set(request.attempt.slice(0, 22), request.attempt)
            return inner.tryAcquire(request, call)
          },
        }),
        backend: (inner) => ({
          async inspect(name, call) {
            const state = await inner.inspect(name, call)
            return (
              state && {
                ...state,
                holders: state.holders.map((holder) => ({ ...holder, note: whole(holder.id) })),
              }
            )
          },
          watch: async function* (prefix, options, call) {
            for await (const event of inner.watch?.(prefix, options, call) ?? [])
              yield event.kind === 'gap' ? event : { ...event, holder: whole(event.id) }
          },
        }),
      })
  }),
  listed('every list lists everything', 'C158', (states) => states),
  listed('a list is in the order of UTF-16', 'C159', (states, prefix) =>
    states.filter(({ name }) => name.startsWith(prefix)).sort((a, b) => (a.name < b.name ? -1 : 1)),
  ),
  listed('a prefix is a pattern', 'C160', (states, prefix) =>
    states.filter(({ name }) => like(prefix).test(name)),
  ),
  listed('a prefix ignores case', 'C160', (states, prefix) =>
    states.filter(({ name }) => name.toLowerCase().startsWith(prefix.toLowerCase())),
  ),
  broken('names ignore case', 'C161', () => renamed((name) => name.toLowerCase())),
  broken('names are normalized', 'C161', () => renamed((name) => name.normalize('NFKC'))),
  broken('braces in names are taken for placeholders', 'C162', () =>
    renamed((name) => name.replace(/[{}$]/g, '')),
  ),
  broken('names are keys of a plain object', 'C163', () => renamed((name) => (name in {} ? 'object' : name))),
  broken('names are trimmed', 'C165', () => renamed((name) => name.trim())),
  broken('names are unescaped', 'C165', () => renamed((name) => name.replaceAll('%2F', '/'))),
  broken('names are cut at 254 bytes', 'C164', () => renamed((name) => name.slice(0, 254))),
  brokenWorld('namespace and name are joined by a slash', 'C168 C169', () =>
    memoryWorld({
      create({ namespace = 'default', ...options }) {
        const joined = renamed((name) => `${namespace}/${name}`)(memory({ ...options, namespace: 'all' }))
        return replace(joined, {
          backend: (inner) => ({
            info: { ...inner.info, namespace },
            list: async (_prefix, _page, call) => {
              const all = await listAll(inner, `${namespace}/`, call)
              const items = all.map((state) => ({
                ...state,
                name: state.name.replace(`${namespace}/`, ''),
              }))
              return { items, next: null }
            },
          }),
        })
      },
    }),
  ),
  brokenWorld('namespaces are ignored', 'C168', () =>
    memoryWorld({ create: ({ namespace: _ignored, ...options }) => memory(options) }),
  ),
  brokenBackend('labels are cut at 100 characters', 'C167', (inner) => ({
    openSession: (asked, call) => inner.openSession({ ...asked, holder: asked.holder.slice(0, 100) }, call),
  })),
  brokenSession('data is cut at 1,000 characters', 'C139', (inner) => ({
    setData: (claim, data, call) => inner.setData?.(claim, data.slice(0, 1_000), call) ?? Promise.reject(),
  })),
  brokenSession('empty data is no data', 'C139', (inner) =>
    regrant(inner, ({ previousData, ...grant }) => (previousData ? { ...grant, previousData } : grant)),
  ),
  brokenSession('data is not handed on', 'C132 C133 C134 C203', (inner) =>
    regrant(inner, ({ previousData: _lost, ...grant }) => grant),
  ),
  brokenSession('data that is refused is said to be stored', 'C135 C136', (inner) => ({
    async setData(claim, data, call) {
      await inner.setData?.(claim, data, call)
      return 'stored'
    },
  })),
  broken('a holder that leaves data beside another has lost the name', 'C252', () => {
    const writing = new Set<string>()
    return (backend) =>
      replace(backend, {
        session: (inner) => ({
          async setData(claim, data, call) {
            if (writing.has(claim.name)) return 'not-held'
            writing.add(claim.name)
            const stored = inner.setData?.(claim, data, call) ?? Promise.reject(new TypeError('no data'))
            return stored.finally(() => writing.delete(claim.name))
          },
        }),
      })
  }),
  brokenBackend('nothing is ever forgotten', 'C48 C137 C138', () => ({ forget: async () => 'changed' })),
  broken('calls are made although their caller has gone', 'C173 C174 C175', () => (backend) => {
    const ignoring =
      (run: (...args: unknown[]) => unknown) =>
      (...args: unknown[]) =>
        run(...args.slice(0, -1), fresh())
    const deaf = replace(backend, { session: (inner) => everyCall<AnySession>(inner, ignoring) })
    return everyCall(deaf, ignoring)
  }),
  broken('errors lose their types', 'C113', () => (backend) => {
    const untyped =
      (run: (...args: unknown[]) => unknown) =>
      async (...args: unknown[]) => {
        try {
          return await run(...args)
        } catch (error) {
          throw isHoldfastError(error) ? new Error(error.message) : error
        }
      }
    const vague = replace(backend, { session: (inner) => everyCall<AnySession>(inner, untyped) })
    return everyCall(vague, untyped)
  }),
  brokenBackend('a client does not end', 'C177 C178', () => ({ [Symbol.asyncDispose]: async () => {} })),
  brokenSession('a try that finds a name busy joins the queue', 'C34 C170', (inner) => ({
    async tryAcquire(request, call) {
      const result = await inner.tryAcquire(request, call)
      if (result.kind === 'busy') queueOf(inner)(request, fresh()).catch(() => {})
      return result
    },
  })),
  brokenBackend(
    'a watch sees every name',
    'C183',
    (inner) =>
      ({
        watch: (_prefix, options, call) => inner.watch?.('', options, call) ?? [],
      }) as Partial<Backend<'fenced'>>,
  ),
  brokenBackend(
    'a watch without a past does not say so',
    'C184 C185',
    (inner) =>
      ({
        watch: (prefix, _options, call) => inner.watch?.(prefix, {}, call) ?? [],
      }) as Partial<Backend<'fenced'>>,
  ),
  broken('a log that was closed for a while says nothing of it', 'C248', () => {
    const told = new Map<string, number>()
    return (backend) =>
      replace(backend, {
        backend: (inner) =>
          ({
            async *watch(prefix, { cursor }, call) {
              const toldMs = cursor === undefined ? undefined : told.get(cursor)
              const isOpen = toldMs !== undefined && inner.clock.monotonicMs() - toldMs < WATCHED_FOR_MS
              const events = inner.watch?.(prefix, isOpen && cursor !== undefined ? { cursor } : {}, call)
              for await (const event of events ?? []) {
                told.set(event.cursor, inner.clock.monotonicMs())
                yield event
              }
            },
          }) as Partial<Backend<'fenced'>>,
      })
  }),
  brokenBackend(
    'a watch never ends',
    'C186',
    (inner) =>
      ({
        watch: (prefix, options) => inner.watch?.(prefix, options, fresh()) ?? [],
      }) as Partial<Backend<'fenced'>>,
  ),
  brokenBackend('the last page is missing', 'C227 C228', (inner) => ({
    async list(prefix, page, call) {
      const found = await inner.list(prefix, page, call)
      return found.next === null && page.cursor !== undefined ? { items: [], next: null } : found
    },
  })),
  brokenBackend('pages are counted, so that names that go shift them', 'C228', (inner) => ({
    async list(prefix, { cursor = '0', limit }, call) {
      const all = await listAll(inner, prefix, call)
      const end = Number(cursor) + limit
      return { items: all.slice(Number(cursor), end), next: end < all.length ? String(end) : null }
    },
  })),
  brokenBackend('a list shows what it has shown before', 'C250', (inner) => {
    const shown = new Map<string, NameState>()
    return {
      async list(prefix, page, call) {
        const { items, next } = await inner.list(prefix, page, call)
        for (const state of items) shown.set(state.name, state)
        return { items: [...shown.values()], next }
      },
    }
  }),
  brokenBackend('a list of sessions shows what it has shown before', 'C251', (inner) => {
    const shown = new Map<string, SessionState>()
    return {
      async sessions(page, call) {
        const { items, next } = (await inner.sessions?.(page, call)) ?? { items: [], next: null }
        for (const state of items) shown.set(state.id, state)
        return { items: [...shown.values()], next }
      },
    }
  }),
  brokenBackend('sessions are listed with their secret ids', 'C229', (inner) => ({
    async sessions(page, call) {
      const found = (await inner.sessions?.(page, call)) ?? { items: [], next: null }
      return { ...found, items: found.items.map((each) => ({ ...each, id: `${each.id}${each.id}` })) }
    },
  })),
  broken('a watch does not tell an expiry, and nothing declares that', 'C182', () =>
    tellsExpiriesAs('ended'),
  ),
  brokenBackend(
    'a watch says nothing of data',
    'C233',
    (inner) =>
      ({
        watch: async function* (prefix, options, call) {
          for await (const event of inner.watch?.(prefix, options, call) ?? [])
            if (event.kind !== 'data') yield event
        },
      }) as Partial<Backend<'fenced'>>,
  ),
  brokenBackend(
    'a watch that goes on from a cursor repeats the event before it',
    'C234',
    (inner) =>
      ({
        watch: async function* (prefix, options, call) {
          let isFirst = options.cursor !== undefined
          for await (const event of inner.watch?.(prefix, options, call) ?? []) {
            if (isFirst) yield event
            isFirst = false
            yield event
          }
        },
      }) as Partial<Backend<'fenced'>>,
  ),
]
