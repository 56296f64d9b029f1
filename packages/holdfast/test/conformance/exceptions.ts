/** What an engine inside the test's own process cannot show, and why. */
const noWire = 'engine and clients are in one process: there are no commands between them to count'
const noDisk = 'the engine ends with the process, and its default issuer with it'
const noBackDoor = 'nothing but the engine itself reaches its memory'

export const memoryExceptions = [
  { rule: 'C50', why: noDisk },
  { rule: 'C51', why: noBackDoor },
  { rule: 'C71', why: noWire },
  { rule: 'C149', why: noBackDoor },
  { rule: 'C150', why: noBackDoor },
]
