/** The sessions of an ensemble, as its leader tracks them. */
import { fourLetterWord, waitFor, type ZooKeeperEnsemble } from 'holdfast-lab/servers'

export async function sessionsAt(ensemble: ZooKeeperEnsemble): Promise<bigint[]> {
  const dump = await fourLetterWord(await ensemble.leader(), 'dump')
  const [tracked = ''] = dump.split(/ephemeral nodes dump/i)
  return [...tracked.matchAll(/0x[0-9a-f]+/g)].map(([id]) => BigInt.asIntN(64, BigInt(id)))
}

/** Call it when all backends are closed. A session that is still kept alive then is a leak. */
export async function expectOneSession(ensemble: ZooKeeperEnsemble, id: bigint): Promise<void> {
  let others: bigint[] = []
  await waitFor('no session but that of the operator', async () => {
    others = (await sessionsAt(ensemble)).filter((each) => each !== id)
    return others.length === 0
  }).catch((error: unknown) => {
    throw new Error(`sessions are left: ${others.map((each) => `0x${each.toString(16)}`)}`, { cause: error })
  })
}
