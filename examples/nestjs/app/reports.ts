/** The service, and where it writes: ordinary providers of NestJS. */
import { Injectable } from '@nestjs/common'
import type { FencedLease } from 'holdfast'
import { sqliteGuard } from 'holdfast/guards/sqlite'
import { Once } from './once.js'

@Injectable()
export class ReportTable {
  private readonly guard = sqliteGuard({ path: process.env.DATA ?? '' })

  /** The table refuses a process that was frozen past its lease, and overtaken. */
  async write(lease: FencedLease, date: string): Promise<void> {
    await this.guard.run(lease, (tx) => {
      tx.prepare('INSERT INTO reports (date, process) VALUES (?, ?)').run(date, process.pid)
    })
  }
}

@Injectable()
export class ReportService {
  // By its type: this is what the metadata of the compiler is for.
  constructor(private readonly table: ReportTable) {}

  /** Called by a timer, at the same time in every process. */
  @Once((date: string) => `nightly-report/${date}`)
  async nightly(date: string, lease?: FencedLease): Promise<string | undefined> {
    if (lease === undefined) throw new Error('called without a lease')
    await new Promise((resolve) => setTimeout(resolve, 50))
    await this.table.write(lease, date)
    return `report of ${date}`
  }
}
