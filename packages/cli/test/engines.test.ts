/** The commands on engines that are servers, as several processes at once. The other tests are on a file. */
import { openLocker } from 'holdfast'
import { startEtcd, startPostgres, startRedis, waitFor, wanted } from 'holdfast-lab/servers'
import { expect, test } from 'vitest'
import { FOREVER, run, shell, start, Trace } from './command.ts'

const engines = [
  ['redis', startRedis, '?fencing=clock-backed'],
  ['postgres', startPostgres, ''],
  ['etcd', startEtcd, ''],
] as const

for (const [engine, begin, query] of engines)
  test.runIf(wanted(engine))(
    `${engine}: run, elect, leader, schedule, ls, show, watch and release`,
    async () => {
      await using server = await begin()
      const trace = new Trace()
      const env = { HOLDFAST_URL: `${server.url}${query}`, TRACE: trace.path }
      await using client = await openLocker(env.HOLDFAST_URL)
      const watching = start(['watch', 'm/'], { env })
      let events = ''
      watching.process.stdout?.on('data', (text: string) => (events += text))
      await waitFor('it watches', async () => {
        await (await client.acquire('m/probe')).release()
        return events.includes('m/probe') || null
      })

      const job = shell('echo "job $HOLDFAST_FENCING_TOKEN" >>"$TRACE"')
      const once = ['run', 'm/job', '--wait', '0', '--hold-at-least', '30s', ...job]
      const codes = (await Promise.all([0, 1, 2, 3].map(() => run(once, { env })))).map(({ code }) => code)
      expect(codes.toSorted((a, b) => Number(a) - Number(b))).toEqual([0, 75, 75, 75])
      expect(trace.lines).toEqual([expect.stringMatching(/^job \d+$/)])

      const ticking = start(
        ['schedule', 'm/tick', '--cron', '* * * * * *', ...shell('echo "tick $HOLDFAST_TICK" >>"$TRACE"')],
        { env },
      )
      const script = `trap 'echo end >>"$TRACE"; exit 0' TERM; echo "term $HOLDFAST_FENCING_TOKEN" >>"$TRACE"; ${FOREVER}`
      const leading = start(['elect', 'm/lead', '--ttl', '3s', '--value', 'a:1', ...shell(script)], { env })
      const terms = () => trace.lines.filter((line) => line.startsWith('term '))
      await waitFor('a term', async () => terms()[0] ?? null)
      const [token = ''] = terms().map((line) => line.slice('term '.length))

      const [leader, shown, listed] = await Promise.all([
        run(['leader', 'm/lead'], { env }),
        run(['show', 'm/lead'], { env }),
        run(['ls', 'm/lead'], { env }),
      ])
      expect(JSON.parse(leader.stdout)).toMatchObject({ token, value: 'a:1' })
      const state = { name: 'm/lead', holders: [{ token, ttlMs: 3_000 }] }
      expect(JSON.parse(shown.stdout)).toMatchObject({
        ...state,
        explanation: expect.stringMatching(/renewing\.$/),
      })
      expect(JSON.parse(listed.stdout)).toMatchObject(state)

      const release = ['release', 'm/lead', '--token', token, '--reason', 'a test', '--yes']
      expect(await run(release, { env })).toMatchObject({
        code: 0,
        stdout: expect.stringMatching(/\nReleased\.\n$/),
      })
      await waitFor('another term', async () => terms()[1] ?? null)
      expect(trace.lines.filter((line) => /^(term|end)/.test(line))).toEqual([terms()[0], 'end', terms()[1]])

      await waitFor('a tick', async () => trace.lines.find((line) => line.startsWith('tick ')) ?? null)
      for (const each of [ticking, leading, watching]) each.kill('SIGTERM')
      expect([(await ticking.ended).code, (await leading.ended).code]).toEqual([143, 0])
      const lines = events.split('\n').slice(0, -1)
      const seen = new Set(lines.map((line) => JSON.parse(line)).map(({ kind, name }) => `${kind} ${name}`))
      expect([...seen]).toEqual(
        expect.arrayContaining(['acquired m/lead', 'force-released m/lead', 'acquired m/tick']),
      )
      // The job keeps its name closed; everything else is free.
      expect((await client.list('m/')).flatMap(({ holders, waiters }) => [...holders, ...waiters])).toEqual(
        [],
      )
    },
  )
