import { wanted } from 'holdfast-lab/servers'
import { test } from 'vitest'
import { playRestore } from '../../../../test/postgres/restoring.ts'
import { postgres } from './index.ts'

test.runIf(wanted('postgres'))(
  'G2 T75 a database that was restored issues tokens again, under the same issuer: a raised epoch makes them safe',
  () => playRestore(postgres),
  60_000,
)
