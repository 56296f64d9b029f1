import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { waitFor } from 'holdfast-lab/servers'
import { expect, test } from 'vitest'
import { newFolder, start } from './command.ts'

test('the lock server that is installed here gets its arguments, its token and signals, and its code is ours', async () => {
  const folder = newFolder()
  const home = join(folder, 'node_modules/holdfast-server')
  mkdirSync(home, { recursive: true })
  const manifest = { name: 'holdfast-server', bin: { 'holdfast-server': 'main.cjs' } }
  writeFileSync(join(home, 'package.json'), JSON.stringify(manifest))
  writeFileSync(
    join(home, 'main.cjs'),
    `process.on('SIGTERM', () => process.exit(9))
    console.log(process.env.HOLDFAST_API_TOKEN, ...process.argv.slice(2))
    setInterval(() => {}, 1000)`,
  )
  const env = { HOLDFAST_API_TOKEN: 'secret' }
  const serving = start(['server', '--', '--port', '1'], { env, through: ['env', '-C', folder] })
  let told = ''
  serving.process.stdout?.on('data', (text: string) => (told += text))
  await waitFor('its arguments', async () => told.includes('\n') || null)
  serving.kill('SIGTERM')
  expect(await serving.ended).toEqual({ code: 9, stdout: 'secret --port 1\n', stderr: '' })
})
