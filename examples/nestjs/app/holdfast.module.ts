/** One locker for the whole application, closed when the application shuts down. */
import { type DynamicModule, Global, Inject, Module, type OnApplicationShutdown } from '@nestjs/common'
import type { Locker } from 'holdfast'

export const LOCKER = Symbol('holdfast locker')

@Global()
@Module({})
export class HoldfastModule implements OnApplicationShutdown {
  @Inject(LOCKER)
  private readonly locker!: Locker

  static forRoot(create: () => Locker<'fenced'> | Promise<Locker<'fenced'>>): DynamicModule {
    return {
      module: HoldfastModule,
      providers: [{ provide: LOCKER, useFactory: create }],
      exports: [LOCKER],
    }
  }

  async onApplicationShutdown(): Promise<void> {
    await this.locker.close()
  }
}
