/**
 * Where code runs that no caller has asked for. `AsyncLocalStorage` follows the code that sets a timer or sends a request; but
 * one timer serves many callers, and one keep-alive many leases. The caller that happened to come first must not be seen by the
 * others' handlers, nor get the engine's calls of hours on the trace of one request, nor be kept from the garbage
 * collector for as long as a session lives.
 *
 * The neutral context is the one in which this module was loaded: usually none.
 */
import './node-version.ts'
import { AsyncLocalStorage } from 'node:async_hooks'

export const inNeutralContext: <T>(run: () => T) => T = AsyncLocalStorage.snapshot()
