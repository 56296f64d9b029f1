/** What servers of different versions say when a user may not run a command of a script. */
import { expect, test } from 'vitest'
import { redisFailure, remedyOf } from './failures.ts'

const inScript = 'script: e0b82b81e73e02bd7b7ddb09141b3dfa3b99b5bd, on @user_script:4.'

test.each([
  ['Redis 6.2', "ERR The user executing the script can't run this command or subcommand", /\+@scripting/],
  [
    'Redis 7.0',
    `ERR The user executing the script can't run this command or subcommand ${inScript}`,
    /\+@scripting/,
  ],
  [
    'Redis 8.0, Valkey 8.1',
    `ERR ACL failure in script: User limited has no permissions to run the 'pexpire' command ${inScript}`,
    /\+pexpire\./,
  ],
  ['Redis 8.0, a key', `ERR ACL failure in script: No permissions to access a key ${inScript}`, /~<pattern>/],
  ['any, outside of a script', "NOPERM User limited has no permissions to run the 'get' command", /\+get\./],
])('G12 %s: the missing right is named, and trying again is no use', (_, said, remedy) => {
  expect(remedyOf(said)).toMatch(remedy)
  const failure = redisFailure('redis', 'acquire', Object.assign(new Error(said), { name: 'ReplyError' }))
  expect(failure).toMatchObject({ code: 'UNSUPPORTED', message: expect.stringMatching(remedy) })
})
