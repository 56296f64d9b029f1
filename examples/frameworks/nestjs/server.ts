/**
 * NestJS: `beforeApplicationShutdown` drains while the server still listens. `onApplicationShutdown` would run after the last
 * request, and wait for it.
 */
import 'reflect-metadata'
import {
  type ArgumentsHost,
  type BeforeApplicationShutdown,
  Catch,
  Controller,
  type ExceptionFilter,
  HttpCode,
  Injectable,
  Module,
  Param,
  Post,
} from '@nestjs/common'
import { BaseExceptionFilter, HttpAdapterHost, NestFactory } from '@nestjs/core'
import type { Response } from 'express'
import { ending, isEnding, listening, openOrders, pack } from '../orders.js'

@Injectable()
class Orders implements BeforeApplicationShutdown {
  private readonly locker = openOrders()
  readonly pack = (customer: string) => pack(this.locker, customer)
  beforeApplicationShutdown = () => this.locker.close(ending)
}

@Controller('orders')
class OrdersController {
  constructor(private readonly orders: Orders) {}

  @Post(':customer')
  @HttpCode(200)
  add(@Param('customer') customer: string): Promise<string> {
    return this.orders.pack(customer)
  }
}

@Catch()
class EndingFilter extends BaseExceptionFilter implements ExceptionFilter {
  override catch(error: unknown, host: ArgumentsHost): void {
    if (!isEnding(error)) super.catch(error, host)
    else
      host.switchToHttp().getResponse<Response>().status(503).set('connection', 'close').send(error.message)
  }
}

@Module({ controllers: [OrdersController], providers: [Orders] })
class AppModule {}

const app = await NestFactory.create(AppModule, { logger: ['error', 'warn'] })
app.useGlobalFilters(new EndingFilter(app.get(HttpAdapterHost).httpAdapter))
// Without it, NestJS ends the process by the signal, and an orchestrator sees 143 in place of 0.
app.enableShutdownHooks(['SIGTERM'], { useProcessExit: true })
await app.listen(0, '127.0.0.1')
listening(Number(new URL(await app.getUrl()).port))
