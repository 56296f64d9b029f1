/** Turns an error of a guard into the answer of a service. */
import { type FenceProblem, isHoldfastError } from '../../base/errors.ts'
import { type Problem, problem } from '../../base/http.ts'

const invalid: Readonly<Record<FenceProblem, Problem>> = {
  missing: refused(428, 'This request needs the fence of the current holder, in the header Holdfast-Fence.'),
  malformed: refused(400, 'The text of the fence is malformed, or there is more than one.'),
  'not-a-fence': refused(400, 'The text of the fence is malformed, or there is more than one.'),
  unsigned: refused(403, 'The fence must be signed.'),
  'unknown-key': refused(403, 'The fence is signed with a key that is not known here.'),
  'bad-signature': refused(403, 'The signature of the fence does not match.'),
  'wrong-name': refused(403, 'The fence is for another name than this request.'),
}

function refused(status: 400 | 403 | 428, detail: string): Problem {
  return problem(status, 'FENCE_INVALID', detail)
}

/** When a store that could not answer may be asked again. */
const RETRY_AFTER_S = 1

/**
 * The answer to an error of a guard or of `readFence`; null for an error that is none of theirs, which stays with the server. The
 * text says neither what the guard has seen nor what the request contained.
 */
export function problemOf(error: unknown): Problem | null {
  if (isHoldfastError(error, 'FENCE_INVALID')) return invalid[error.problem]
  if (isHoldfastError(error, 'FENCE_FOREIGN'))
    return problem(403, error.code, 'The fence was issued by somebody whose tokens are not compared here.')
  if (isHoldfastError(error, 'FENCE_STALE'))
    return problem(
      409,
      error.code,
      'A newer holder has been here, or the fence was used before. Do not repeat the request blindly: acquire again and read the current state.',
    )
  if (isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
    return problem(503, error.code, 'The store of the guard did not answer.', {
      retryAfterS: RETRY_AFTER_S,
      outcome: error.outcome,
    })
  if (isHoldfastError(error, 'CONFLICT') || isHoldfastError(error, 'CLOSED'))
    return problem(503, error.code, 'The store of the guard could not do it now. Nothing was changed.', {
      retryAfterS: RETRY_AFTER_S,
      outcome: 'not-applied',
    })
  return null
}
