/** The state of a name for users. Backends tell of capacity and weights of locks as well, which are only a way to count. */

import { withEpoch } from '../base/fence.ts'
import { tokensAsText } from '../base/tokens-as-text.ts'
import type { HolderState, NameState, WaiterState } from '../base/types.ts'
import * as spi from '../spi.ts'

export function shownState({ capacity, holders, waiters, ...rest }: spi.NameState, epoch: number): NameState {
  const isLock = capacity === spi.LOCK_CAPACITY
  const shown = <T extends { readonly weight: number }>({ weight, ...claim }: T) => ({
    ...claim,
    ...(!isLock && { weight }),
  })
  return {
    ...rest,
    ...(!isLock && { capacity }),
    holders: holders.map((holder): HolderState => {
      const token = holder.token === null ? null : withEpoch(epoch, holder.token)
      return tokensAsText({ ...shown(holder), token })
    }),
    waiters: waiters.map((waiter): WaiterState => shown(waiter)),
  }
}
