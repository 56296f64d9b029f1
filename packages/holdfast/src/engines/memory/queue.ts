/**
 * The waiters of a name, in the order in which they are granted. A linked list: the head leaves at every release, and any
 * waiter may leave from the middle. Both cost the same with 10 waiters and with 10,000.
 */
export interface Queued<Self> {
  before: Self | undefined
  behind: Self | undefined
}

export class Queue<Member extends Queued<Member>> {
  #first: Member | undefined
  #last: Member | undefined
  #length = 0

  get first(): Member | undefined {
    return this.#first
  }

  get length(): number {
    return this.#length
  }

  join(member: Member): void {
    member.before = this.#last
    if (this.#last === undefined) this.#first = member
    else this.#last.behind = member
    this.#last = member
    this.#length++
  }

  leave(member: Member): void {
    if (member.before === undefined) this.#first = member.behind
    else member.before.behind = member.behind
    if (member.behind === undefined) this.#last = member.before
    else member.behind.before = member.before
    member.before = undefined
    member.behind = undefined
    this.#length--
  }

  *[Symbol.iterator](): Generator<Member> {
    for (let member = this.#first; member !== undefined; member = member.behind) yield member
  }
}
