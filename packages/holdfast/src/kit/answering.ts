import type { Attempt, EnqueueResult, Fencing } from '../spi.ts'

/** Answers an attempt with the result of a promise, for an engine that is written with promises. */
export function answering<F extends Fencing>(attempt: Attempt<F>, result: Promise<EnqueueResult<F>>): void {
  result.then(
    (answer) => attempt.answer(answer),
    (error: unknown) => attempt.fail(error),
  )
}
