/** Messages between the conductor and the replicas. */

export type Protection = 'none' | 'lease' | 'lease and guard'

export interface Order {
  readonly month: string
  readonly protection: Protection
}

export type Report =
  | { readonly kind: 'ready' }
  /** It has worked out the invoices, and stands still until it is told to go on. */
  | { readonly kind: 'about-to-write' }
  | { readonly kind: 'refused' }
  | { readonly kind: 'finished'; readonly outcome: Outcome }

export type Outcome = 'ran' | 'found it done'
