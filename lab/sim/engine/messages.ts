/** Messages between clients and the simulated engine, as plain data. */
import type {
  AcquireRequest,
  Claim,
  GrantedClaim,
  LostClaim,
  NameState,
} from '../../../packages/holdfast/src/spi.ts'

export type EngineRequest =
  | { readonly kind: 'open'; readonly session: string; readonly ttlMs: number; readonly holder: string }
  | {
      readonly kind: 'keepAlive'
      readonly session: string
      readonly held: readonly GrantedClaim[]
      readonly waiting: readonly Claim[]
    }
  | { readonly kind: 'tryAcquire'; readonly session: string; readonly request: AcquireRequest }
  | { readonly kind: 'enqueue'; readonly session: string; readonly request: AcquireRequest }
  | { readonly kind: 'abandon'; readonly session: string; readonly claim: Claim }
  | {
      readonly kind: 'setData'
      readonly session: string
      readonly claim: GrantedClaim
      readonly data: string
    }
  | {
      readonly kind: 'release'
      readonly session: string
      readonly claim: GrantedClaim
      readonly keepForMs: number
    }
  | { readonly kind: 'close'; readonly session: string }
  | { readonly kind: 'check'; readonly name: string; readonly id: string; readonly token: bigint }
  | { readonly kind: 'inspect'; readonly name: string }
  | { readonly kind: 'list'; readonly prefix: string }
  | {
      readonly kind: 'forceRelease'
      readonly name: string
      readonly ids: readonly string[]
      readonly notAfterMs: number
    }

/** A grant, before the client has added since when it may believe it. */
export interface Granted {
  readonly name: string
  readonly attempt: string
  readonly token: bigint
  readonly previousData: string | undefined
}

export type EngineAnswer =
  | { readonly kind: 'opened'; readonly ttlMs: number }
  | {
      readonly kind: 'alive'
      readonly ttlMs: number
      readonly lost: readonly LostClaim[]
      readonly granted: readonly Granted[]
      readonly unlisted: readonly Claim[]
    }
  | { readonly kind: 'gone' }
  | { readonly kind: 'granted'; readonly grant: Granted }
  | { readonly kind: 'waiting' }
  | { readonly kind: 'busy'; readonly retryAfterMs?: number }
  | { readonly kind: 'abandoned' }
  | { readonly kind: 'yes' }
  | { readonly kind: 'no' }
  | { readonly kind: 'count'; readonly count: number }
  | { readonly kind: 'too-late' }
  | { readonly kind: 'shown'; readonly state: NameState | null }
  | { readonly kind: 'listed'; readonly states: readonly NameState[] }
  | { readonly kind: 'mismatch'; readonly name: string; readonly asked: number; readonly inUse: number }

/** Messages that the engine sends unasked. */
export type EnginePush =
  | { readonly kind: 'turn'; readonly grant: Granted }
  | { readonly kind: 'no-turn'; readonly attempt: string; readonly why: 'abandoned' | 'gone' }

/** For the trace: `tryAcquire a c1-17`. */
export function describeRequest(request: EngineRequest): string {
  switch (request.kind) {
    case 'tryAcquire':
    case 'enqueue':
      return `${request.kind} ${request.request.name} ${shortId(request.request.attempt)}`
    case 'abandon':
    case 'setData':
    case 'release':
      return `${request.kind} ${request.claim.name} ${shortId(request.claim.attempt)}`
    case 'keepAlive':
      return `keepAlive ${shortId(request.session)} held ${idsOf(request.held)} waiting ${idsOf(request.waiting)}`
    case 'open':
      return `open ${shortId(request.session)} ttl ${request.ttlMs}`
    case 'close':
      return `close ${shortId(request.session)}`
    case 'list':
      return `list ${request.prefix}`
    default:
      return `${request.kind} ${request.name}`
  }
}

export function describeAnswer(answer: EngineAnswer): string {
  switch (answer.kind) {
    case 'granted':
      return `granted ${shortId(answer.grant.attempt)} token ${answer.grant.token}`
    case 'alive': {
      const lost = answer.lost.map((each) => `${shortId(each.attempt)} ${each.reason}`).join(',')
      return `alive lost [${lost}] granted ${idsOf(answer.granted)} unlisted ${idsOf(answer.unlisted)}`
    }
    default:
      return answer.kind
  }
}

/** Simulated ids are padded to the length of real ones. */
export function shortId(id: string): string {
  return id.slice(0, 22).replace(/_+$/, '')
}

function idsOf(claims: readonly { readonly attempt: string }[]): string {
  return `[${claims.map((claim) => shortId(claim.attempt)).join(',')}]`
}
