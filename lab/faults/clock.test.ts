// The clock of a running server is moved: what it says about time, and what it does because of it, must follow.

import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import {
  connectRedis,
  connectZooKeeper,
  noNode,
  psql,
  redisCall,
  startPostgres,
  startRedis,
  startZooKeeper,
  waitFor,
  wanted,
  type ZooKeeperError,
} from '../servers/index.ts'
import { createClock } from './index.ts'

const hourMs = 3_600_000

describe('the clock', () => {
  test.runIf(wanted('redis'))('Redis: a step forward makes a key expire early, live', async () => {
    const clock = createClock()
    await using redis = await startRedis({ clock })
    using client = await connectRedis(redis)
    await client.call('SET', 'lock', 'mine', 'PX', hourMs)
    await client.call('SET', 'other', 'mine', 'PX', 3 * hourMs)
    assert.equal(await client.call('GET', 'lock'), 'mine')
    clock.step(hourMs + 1_000)
    assert.equal(await client.call('GET', 'lock'), null)
    assert.equal(await client.call('GET', 'other'), 'mine')
  })

  test.runIf(wanted('redis'))('Redis: a step back makes a key live longer', async () => {
    const clock = createClock()
    await using redis = await startRedis({ clock })
    await redisCall(redis, 'SET', 'lock', 'mine', 'PX', 10_000)
    clock.step(-hourMs)
    assert.ok(Number(await redisCall(redis, 'PTTL', 'lock')) > hourMs)
    clock.reset()
    assert.ok(Number(await redisCall(redis, 'PTTL', 'lock')) <= 10_000)
  })

  test.runIf(wanted('redis'))('two servers with clocks of their own disagree', async () => {
    const clock = createClock()
    await using ahead = await startRedis({ clock })
    await using right = await startRedis({ clock: createClock() })
    clock.step(hourMs)
    const seconds = async (server: typeof ahead) => Number(((await redisCall(server, 'TIME')) as string[])[0])
    const behind = await seconds(right)
    assert.ok((await seconds(ahead)) - behind >= 3_600)
    assert.ok(Math.abs(behind * 1_000 - Date.now()) < hourMs / 2)
  })

  test.runIf(wanted('postgres'))(
    'PostgreSQL: clock_timestamp() follows, in a connection that is open',
    async () => {
      const clock = createClock()
      await using postgres = await startPostgres({ clock })
      // A session waits for the step, so that it cannot have learnt the new time by starting after it.
      await psql(postgres, 'create table stepped (at int)')
      const session = psql(
        postgres,
        `do $$
       declare before timestamptz := clock_timestamp();
       begin
         perform pg_advisory_lock(1);
         while not exists (select from stepped) loop perform pg_sleep(0.01); end loop;
         perform set_config('lab.moved', extract(epoch from clock_timestamp() - before)::text, false);
       end $$;
       select current_setting('lab.moved')`,
      )
      // It takes the lock when it has looked at the clock.
      const locks = `select count(*) from pg_locks where locktype = 'advisory'`
      await waitFor('the session to run', async () => (await psql(postgres, locks)) === '1')
      clock.step(hourMs)
      await psql(postgres, 'insert into stepped values (1)')
      assert.ok(Number(await session) >= 3_600)
    },
  )

  test.runIf(wanted('zookeeper'))('ZooKeeper: nodes bear the moved time', async () => {
    const clock = createClock()
    await using ensemble = await startZooKeeper({ clock })
    using client = await connectZooKeeper(await ensemble.leader())
    await client.create('/before')
    clock.step(hourMs)
    await client.create('/after')
    const [before, after] = await Promise.all([client.get('/before'), client.get('/after')])
    assert.ok(after.modifiedMs - before.modifiedMs >= hourMs)
  })

  test.runIf(wanted('zookeeper'))('ZooKeeper: a jump of the other clock ends a session early', async () => {
    const clock = createClock()
    await using ensemble = await startZooKeeper({ clock, settings: { maxSessionTimeout: String(hourMs) } })
    const server = await ensemble.leader()
    using holder = await connectZooKeeper(server, { sessionTimeoutMs: hourMs })
    assert.equal(holder.sessionTimeoutMs, hourMs)
    await holder.create('/lock', '', { ephemeral: true })
    await holder.get('/lock')
    clock.stepMonotonic(hourMs + 1_000)
    await waitFor('the node of the session to vanish', async () => {
      using observer = await connectZooKeeper(server)
      return await observer.get('/lock').then(
        () => false,
        (error: ZooKeeperError) => error.code === noNode,
      )
    })
  })
})
