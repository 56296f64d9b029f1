/** A backend with everything taken away that a backend may lack. */

import type { Wrap } from '../../src/testing/conformance/clients.ts'
import { replace } from '../../src/testing/conformance/wrapping.ts'

export const bare: Wrap<'fenced'> = (backend) =>
  replace<'fenced'>(backend, {
    backend: ({ info, inspect }) => ({
      info: {
        ...info,
        fencing: 'unfenced' as string as 'fenced',
        modes: ['exclusive'],
        waiting: 'poll',
        lockDelay: 'none',
        holdAtLeast: 'none',
        data: false,
      },
      watch: undefined,
      async inspect(name, call) {
        const state = await inspect(name, call)
        return state && { ...state, holders: state.holders.map((holder) => ({ ...holder, token: null })) }
      },
    }),
    session: (inner) => ({
      enqueue: undefined,
      setData: undefined,
      async tryAcquire(request, call) {
        const result = await inner.tryAcquire(request, call)
        if (result.kind !== 'granted') return result
        // The type says that there is a token, and the point is that there is none.
        return { kind: 'granted', grant: { ...result.grant, token: null as unknown as bigint } }
      },
    }),
  })
