// Reading TypeScript. The compiler that builds this repository has no stable programming interface, so the
// checks use the last one that has; it only parses here and never judges the code.

import ts from 'typescript6'

export { ts }

export function parse(path: string, text: string): ts.SourceFile {
  return ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true, ts.ScriptKind.TS)
}

export function* descendants(node: ts.Node): Generator<ts.Node> {
  const children: ts.Node[] = []
  ts.forEachChild(node, (child) => {
    children.push(child)
  })
  for (const child of children) {
    yield child
    yield* descendants(child)
  }
}

export function lineOf(node: ts.Node): number {
  const file = node.getSourceFile()
  return file.getLineAndCharacterOfPosition(node.getStart(file)).line + 1
}

export interface Import {
  /** The imported module, or null where it is not a literal and so cannot be known. */
  readonly from: string | null
  readonly typeOnly: boolean
  /** `import('…')` in an expression. */
  readonly dynamic: boolean
  readonly line: number
}

/** Every import and re-export of a file: static, dynamic, and `import('…')` in a type. */
export function importsOf(file: ts.SourceFile): Import[] {
  const found: Import[] = []
  const add = (node: ts.Node, from: ts.Node | undefined, typeOnly: boolean, dynamic = false) => {
    const literal = from !== undefined && ts.isStringLiteralLike(from) ? from.text : null
    found.push({ from: literal, typeOnly, dynamic, line: lineOf(node) })
  }
  for (const node of descendants(file)) {
    if (ts.isImportDeclaration(node)) {
      add(node, node.moduleSpecifier, isTypeOnly(node.importClause))
    } else if (ts.isExportDeclaration(node) && node.moduleSpecifier) {
      add(node, node.moduleSpecifier, node.isTypeOnly || onlyTypes(node.exportClause))
    } else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      add(node, node.arguments[0], false, true)
    } else if (ts.isImportTypeNode(node)) {
      add(node, ts.isLiteralTypeNode(node.argument) ? node.argument.literal : undefined, true)
    }
  }
  return found
}

function isTypeOnly(clause: ts.ImportClause | undefined): boolean {
  if (!clause) return false
  if (clause.phaseModifier === ts.SyntaxKind.TypeKeyword) return true
  return clause.name === undefined && onlyTypes(clause.namedBindings)
}

/** `{ type A, type B }`: every name is marked, and there is at least one. */
function onlyTypes(bindings: ts.NamedImportBindings | ts.NamedExportBindings | undefined): boolean {
  if (!bindings || !(ts.isNamedImports(bindings) || ts.isNamedExports(bindings))) return false
  return bindings.elements.length > 0 && bindings.elements.every((element) => element.isTypeOnly)
}
