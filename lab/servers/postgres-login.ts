import { connect } from 'node:net'

const protocolVersion = 0x0003_0000

/** Whether a server of PostgreSQL's protocol lets us in and is ready for a query: `Z`, after all the rest. */
export function canLogIn({ host, port }: { host: string; port: number }): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port })
    let answer = Buffer.alloc(0)
    socket.setTimeout(2_000, () => socket.destroy(new Error('no answer to the log-in')))
    socket.once('error', reject)
    socket.once('close', () => resolve(false))
    socket.on('data', (chunk) => {
      answer = Buffer.concat([answer, chunk])
      if (messageTypes(answer).includes('Z')) {
        resolve(true)
        socket.end(Buffer.from('X\0\0\0\x04', 'latin1'))
      }
    })
    socket.write(startupMessage({ user: 'postgres', database: 'postgres' }))
  })
}

function startupMessage(parameters: Record<string, string>): Buffer {
  const text = Object.entries(parameters).flat().concat('').join('\0')
  const body = Buffer.from(`${text}\0`)
  const head = Buffer.alloc(8)
  head.writeInt32BE(head.length + body.length, 0)
  head.writeInt32BE(protocolVersion, 4)
  return Buffer.concat([head, body])
}

/** Each message is a letter, and a length that counts itself. */
function messageTypes(bytes: Buffer): string[] {
  const types: string[] = []
  for (let at = 0; at + 5 <= bytes.length; at += 1 + bytes.readInt32BE(at + 1)) {
    types.push(bytes.toString('latin1', at, at + 1))
  }
  return types
}
