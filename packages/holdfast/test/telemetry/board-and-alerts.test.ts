/** The board and the alerts, against the table of metrics and with the real `promtool`. */
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promtool, wanted } from 'holdfast-lab/servers'
import { describe, onTestFinished, test } from 'vitest'
import { metrics, prometheusName } from '../../src/telemetry/metrics.ts'

const folder = join(import.meta.dirname, '../../../../docs/telemetry')
const read = (name: string) => readFileSync(join(folder, name), 'utf8')

interface Panel {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly gridPos: { readonly x: number; readonly w: number }
  readonly targets?: readonly { readonly expr: string }[]
}

const board = JSON.parse(read('grafana.json')) as { schemaVersion: number; uid: string; panels: Panel[] }
const queries = board.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr))
const names = metrics.map(prometheusName)
/** The metrics that a text names; those of a histogram have suffixes. */
const namedIn = (text: string) => {
  const found = text.match(/\bholdfast_\w+/g) ?? []
  return new Set(
    found.map((name) => (names.includes(name) ? name : name.replace(/_(bucket|count|sum)$/, ''))),
  )
}
const alertNames = [...read('alerts.yml').matchAll(/- alert: (\w+)/g)].map(([, name = '']) => name)

function temporaryFile(name: string, text: string): string {
  const path = mkdtempSync(join(tmpdir(), 'holdfast-promtool-'))
  onTestFinished(() => rmSync(path, { recursive: true }))
  writeFileSync(join(path, name), text)
  return join(path, name)
}

describe('metrics of the table', () => {
  test('all are on the board, and the board names no other', () => {
    assert.deepEqual([...namedIn(queries.join('\n'))].sort(), [...names].sort())
  })

  test('the alerts and the runbook name no other', () => {
    for (const file of ['alerts.yml', 'runbook.md'])
      assert.deepEqual(
        [...namedIn(read(file))].filter((name) => !names.includes(name)),
        [],
        file,
      )
  })

  test('the labels in queries are those of the metric', () => {
    const labelsOf = new Map(metrics.map((metric) => [prometheusName(metric), metric.labels]))
    for (const query of [...queries, read('alerts.yml')])
      for (const [, name = '', selector = ''] of query.matchAll(/\b(holdfast_\w+)\{(.*?)\}/g)) {
        const [metric = ''] = namedIn(name)
        for (const [, label = ''] of selector.matchAll(/(\w+)=~?"/g))
          assert.ok(labelsOf.get(metric)?.includes(label), `${name} has no label ${label}`)
      }
  })
})

test('rates are of what goes on all the time: the first event of a series is none', () => {
  const others = queries.filter((query) => /rate\((?!holdfast_(acquire|hold|renewal)s?_)/.test(query))
  assert.deepEqual(others, [])
  for (const query of queries)
    for (const [increase, series = '', name = '', range] of query.matchAll(
      /increase\(((holdfast_\w+).*?)\[(\w+)\]\)/g,
    ))
      assert.ok(query.includes(`((${series} unless ${name} offset ${range}) or ${increase})`), query)
})

test('the board has the form of Grafana’s: a schema version, panels in a grid of 24, an id for each', () => {
  assert.equal(board.schemaVersion, 39)
  assert.equal(board.uid, 'holdfast')
  assert.equal(new Set(board.panels.map(({ id }) => id)).size, board.panels.length)
  for (const { type, title, gridPos, targets } of board.panels) {
    assert.ok(gridPos.x + gridPos.w <= 24, title)
    assert.ok(title !== '' && (type === 'row' || (targets?.length ?? 0) > 0), title)
  }
})

test('each alert, eight at most, has its paragraph in the runbook, and each paragraph an alert', () => {
  assert.ok(alertNames.length <= 8)
  const runbook = read('runbook.md')
  const headings = [...runbook.matchAll(/^## (\w+)$/gm)].map(([, name = '']) => name)
  assert.deepEqual(headings, alertNames)
  const links = [...read('alerts.yml').matchAll(/runbook\.md#(\w+)/g)].map(([, anchor]) => anchor)
  assert.deepEqual(
    links,
    alertNames.map((name) => name.toLowerCase()),
  )
  assert.ok(runbook.split('\n').length <= 151)
  for (const part of ['**Meaning.**', '**Look at**', '**Do.**'])
    assert.equal(runbook.split(part).length - 1, alertNames.length, part)
})

describe.runIf(wanted('prometheus'))('promtool', () => {
  test('accepts the alerts, and every query of the board', () => {
    const alerts = promtool('check', 'rules', join(folder, 'alerts.yml'))
    assert.equal(alerts.status, 0, alerts.output)
    const rules = queries.map((query, at) => {
      const expr = query.replaceAll('$__rate_interval', '5m').replaceAll(/\$\w+/g, '.*')
      return { record: `query:${at}`, expr }
    })
    const file = JSON.stringify({ groups: [{ name: 'board', rules }] })
    const board = promtool('check', 'rules', temporaryFile('board.yml', file))
    assert.equal(board.status, 0, board.output)
    assert.match(board.output, new RegExp(`${queries.length} rules`))
    const broken = promtool('check', 'rules', temporaryFile('broken.yml', file.replace('sum by', 'sun by')))
    assert.notEqual(broken.status, 0, 'a query that does not parse is refused')
  })

  test('shows the first event of each series in every query over events, and none when nothing has happened', () => {
    const labelsOf = new Map(metrics.map((metric) => [prometheusName(metric), metric.labels]))
    const ofLabels = (labels: readonly string[]) => `{${labels.map((label) => `${label}="x"`).join(',')}}`
    const counted = queries.filter((query) => query.startsWith('sum by') && query.includes('increase('))
    assert.equal(counted.length, 13)
    const parts = counted.map((query) => {
      const [, by = '', name = ''] = /^sum by \((.*?)\) .*?(holdfast_\w+)/.exec(query) ?? []
      const series = name + ofLabels(labelsOf.get(name) ?? [])
      return { expr: query.replaceAll(/\$\w+/g, '.*'), series, labels: ofLabels(by.split(', ')) }
    })
    const shown = (values: string, eval_time: string, value: number) => ({
      interval: '4m',
      input_series: parts.map(({ series }) => ({ series, values })),
      promql_expr_test: parts.map(({ expr, labels }) => ({
        expr,
        eval_time,
        exp_samples: [{ labels, value }],
      })),
    })
    const tests = [shown('_x4 3', '20m', 3), shown('3x410', '27h', 0)]
    const file = JSON.stringify({ evaluation_interval: '20m', tests })
    const { status, output } = promtool('test', 'rules', temporaryFile('board.json', file))
    assert.equal(status, 0, output)
  })

  test('sees each alert fire, and stay quiet when it should', () => {
    const cases = ['alerts', 'ticks'].map((name) =>
      readFileSync(join(import.meta.dirname, `${name}.cases.yml`), 'utf8'),
    )
    for (const name of alertNames)
      for (const kind of ['quiet', 'fires'])
        assert.ok(cases.join('').includes(`- name: ${name} ${kind}\n`), name)
    const played = (text: string, rules: string) =>
      promtool('test', 'rules', temporaryFile('cases.yml', text.replace('ALERTS', rules)))
    for (const text of cases) {
      const { status, output } = played(text, join(folder, 'alerts.yml'))
      assert.equal(status, 0, output)
    }
    const never = temporaryFile('never.yml', read('alerts.yml').replaceAll(' > 0', ' > 1000'))
    assert.notEqual(played(cases[0] ?? '', never).status, 0, 'alerts that never fire are noticed')
  })
})
