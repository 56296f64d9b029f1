/**
 * A method with `@Cron` of `@nestjs/schedule` runs on one replica. Two replicas of the application live in this process.
 *
 *     node node_modules/typescript6/bin/tsc -p examples/schedules-nestjs
 *     node examples/schedules-nestjs/dist/main.js
 */
import 'reflect-metadata'
import { Inject, Injectable, Module, type OnApplicationShutdown } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { Cron, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule'
import { createLocker, type Locker } from 'holdfast'
import { MemoryEngine, memory } from 'holdfast/memory'
import { type TickRunner, tickOfCronJob, tickRunner } from 'holdfast/recipes/schedule'

const runs: { readonly tick: string; readonly replica: string }[] = []
const engine = new MemoryEngine()

@Injectable()
class ReportService implements OnApplicationShutdown {
  @Inject(SchedulerRegistry) private readonly registry!: SchedulerRegistry
  readonly locker: Locker<'fenced'> = createLocker(memory({ engine }))
  readonly ticks: TickRunner = tickRunner(this.locker, { name: 'report' }, ({ tick, lease }) => {
    runs.push({ tick: tick.id, replica: lease.holder })
  })

  @Cron('* * * * * *', { name: 'report', timeZone: 'Europe/Berlin' })
  async report(): Promise<void> {
    await this.ticks.run(tickOfCronJob(this.registry.getCronJob('report')))
  }

  /** The job that runs ends before its lease is given up. */
  async onApplicationShutdown(): Promise<void> {
    await this.ticks.close()
    await this.locker.close()
  }
}

@Module({ imports: [ScheduleModule.forRoot()], providers: [ReportService] })
class AppModule {}

const replicas = await Promise.all(
  [1, 2].map(() => NestFactory.createApplicationContext(AppModule, { logger: false })),
)
const deadlineMs = Date.now() + 20_000
while (runs.length < 3 && Date.now() < deadlineMs) await new Promise((resolve) => setTimeout(resolve, 50))
await Promise.all(replicas.map((replica) => replica.close()))

const ticks = runs.map(({ tick }) => tick)
if (ticks.length < 3) throw new Error(`There were ${ticks.length} ticks only.`)
if (new Set(ticks).size !== ticks.length) throw new Error(`A tick ran twice: ${ticks.join(' ')}`)
if (!ticks.every((tick) => tick.endsWith('.000Z'))) throw new Error(`No scheduled times: ${ticks.join(' ')}`)
console.log('Each tick ran on one of two replicas.')
