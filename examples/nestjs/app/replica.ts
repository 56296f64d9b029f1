/** One process of the application. */
import 'reflect-metadata'
import { Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { createLocker } from 'holdfast'
import { sqlite } from 'holdfast/sqlite'
import { HoldfastModule } from './holdfast.module.js'
import { ReportService, ReportTable } from './reports.js'

@Module({
  imports: [HoldfastModule.forRoot(() => createLocker(sqlite({ path: process.env.LOCKS ?? '' })))],
  providers: [ReportTable, ReportService],
})
class AppModule {}

const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error', 'warn'] })
const reports = app.get(ReportService)
process.send?.({ kind: 'ready' })
process.on('message', async ({ date }: { date: string }) => {
  process.send?.({ kind: 'done', result: await reports.nightly(date) })
})
process.once('SIGTERM', async () => {
  await app.close()
  process.disconnect()
})
