/** Reads the sources as a compiler does: what each file imports, and what it calls. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const SRC = fileURLToPath(new URL('../../src/', import.meta.url));

export interface SourceImport {
  /** A module of ours as its path below src without `.ts`; anything else as written. */
  target: string;
  isOurs: boolean;
  /** Gone once compiled. */
  isTypeOnly: boolean;
  isDynamic: boolean;
}

export interface SourceFile {
  /** Path below src, without `.ts`. */
  name: string;
  imports: SourceImport[];
  /** What is called, as written: `process.exit`, `rm`, … */
  calls: string[];
}

export function readSources(): SourceFile[] {
  return readdirSync(SRC, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .map((path) => parseSource(path.slice(0, -'.ts'.length), readFileSync(join(SRC, path), 'utf8')))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

export function parseSource(name: string, text: string): SourceFile {
  const file: SourceFile = { name, imports: [], calls: [] };
  const add = (specifier: ts.Node | undefined, isTypeOnly: boolean, isDynamic: boolean): void => {
    if (specifier === undefined) return;
    const written = ts.isStringLiteralLike(specifier) ? specifier.text : '(computed)';
    const isOurs = written.startsWith('.');
    const target = isOurs ? posix.join(posix.dirname(name), written).replace(/\.ts$/, '') : written;
    file.imports.push({ target, isOurs, isTypeOnly, isDynamic });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node)) add(node.moduleSpecifier, isTypeImport(node.importClause), false);
    if (ts.isExportDeclaration(node)) add(node.moduleSpecifier, node.isTypeOnly, false);
    if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) add(node.argument.literal, true, false);
    if (ts.isCallExpression(node)) {
      if (node.expression.kind === ts.SyntaxKind.ImportKeyword) add(node.arguments[0], false, true);
      else file.calls.push(node.expression.getText());
    }
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(`${name}.ts`, text, ts.ScriptTarget.ES2022, true));
  return file;
}

/** True for `import type …`, and for `import { type A, type B } …`. */
function isTypeImport(clause: ts.ImportClause | undefined): boolean {
  if (clause === undefined) return false;
  if (clause.isTypeOnly) return true;
  const bindings = clause.namedBindings;
  if (clause.name !== undefined || bindings === undefined || !ts.isNamedImports(bindings)) return false;
  return bindings.elements.length > 0 && bindings.elements.every((element) => element.isTypeOnly);
}
