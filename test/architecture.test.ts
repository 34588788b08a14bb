import { describe, expect, it } from 'vitest';
import { parseSource, readSources, type SourceFile } from './support/source.ts';

const TOP = ['errors', 'config', 'log', 'installation'] as const;

/**
 * Who may import what, by path below src. A row is one file, or, ending with `/`, the files of one
 * folder; a file's own row comes before its folder's. What may be imported is a file, or a folder
 * with all below it. A new file at the top or a new folder fails until somebody gives it a row.
 */
const LAW: Record<string, readonly string[]> = {
  errors: [],
  config: ['errors'],
  log: ['errors'],
  installation: [],
  index: ['errors', 'client/', 'registry/record', 'rpc/control'],

  'rpc/': [...TOP, 'rpc/'],
  'process/': [...TOP, 'process/'],
  'registry/': [...TOP, 'process/', 'registry/'],
  'client/': [...TOP, 'rpc/', 'process/', 'registry/', 'client/'],
  'supervisor/': [...TOP, 'process/', 'registry/', 'client/', 'supervisor/'],
  'hooks/': [...TOP, 'process/identity', 'registry/', 'client/', 'supervisor/', 'hooks/'],

  'cli/': [...TOP, 'registry/', 'client/', 'supervisor/', 'cli/'],
  // The shim runs the command itself when no broker can be had.
  'cli/fallback': [...TOP, 'process/'],
  'cli/cost': [...TOP, 'process/'],
  // The one command that is the hooks; what they leave undone goes to a detached process.
  'cli/hook': [...TOP, 'registry/', 'hooks/', 'process/detach', 'cli/'],

  'broker/': [...TOP, 'rpc/', 'process/', 'registry/', 'broker/'],
  // Pure, or close to it: they would be right in any other program.
  'broker/leases': [],
  'broker/resource': [...TOP, 'broker/leases'],
  'broker/lifetime': ['registry/record'],
  'broker/upstream/': [...TOP, 'rpc/', 'process/', 'registry/', 'broker/resource', 'broker/leases', 'broker/upstream/'],
};

/** Where a way in or a whole is put together: nobody but the named one builds on it. */
const IMPORTED_ONLY_BY: Record<string, readonly string[]> = {
  index: [],
  'broker/main': [],
  'broker/broker': ['broker/main'],
  'cli/program': [],
  'cli/hook': ['cli/commands'],
};

/** They decide and do nothing else: facts come in as arguments, so only types are imported. */
const PURE = ['broker/lifetime', 'broker/leases', 'supervisor/verdict', 'client/judge-owner', 'cli/connect-arguments'];

interface OnlyHere {
  what: string;
  calls: RegExp;
  /** Files, or rooms with `/`. */
  where: readonly string[];
  why: string;
}

const ONLY_HERE: OnlyHere[] = [
  {
    what: 'ends the process',
    calls: /^process\.(exit|abort|reallyExit)$/,
    where: ['broker/main', 'cli/hook'],
    why: 'everything else returns or throws, so that nothing is cut off half-way; a hook has to end in time',
  },
  {
    what: 'signals a process by number',
    calls: /^process\.kill$/,
    where: ['process/'],
    why: 'a pid is no identity: the check and the signal stay together',
  },
  {
    what: 'removes a file',
    calls: /(^|\.)(unlink|rm|rmdir)(Sync)?$/,
    // All of it: records, sockets of dead brokers, abandoned folders, holds, temp and lock files.
    where: ['registry/'],
    why: 'only what names us is removed, and the registry is where names are compared',
  },
  {
    what: 'spawns a process',
    calls: /^(spawn|spawnSync|exec|execSync|execFile|execFileSync|fork|execa)$/,
    where: ['process/'],
    why: 'whoever starts it registers its end, and the environment is chosen in one place',
  },
];

const SOURCES = readSources();

const fits = (name: string, row: string): boolean => (row.endsWith('/') ? name.startsWith(row) : name === row);
const fitsAny = (name: string, rows: readonly string[]): boolean => rows.some((row) => fits(name, row));

function findRow(name: string): string | undefined {
  const folder = name.slice(0, name.lastIndexOf('/') + 1);
  return [name, folder].find((row) => Object.hasOwn(LAW, row));
}

function forbiddenImports({ name, imports }: SourceFile): string[] {
  const may = LAW[findRow(name) ?? ''] ?? [];
  return imports.filter((one) => one.isOurs && !fitsAny(one.target, may)).map((one) => `${name} imports ${one.target}`);
}

describe('the import law', () => {
  it('has a row for every file and folder', () => {
    expect(SOURCES.filter(({ name }) => findRow(name) === undefined).map(({ name }) => name)).toEqual([]);
  });

  it('has no row without a file', () => {
    const used = new Set(SOURCES.map(({ name }) => findRow(name)));
    expect(Object.keys(LAW).filter((row) => !used.has(row))).toEqual([]);
  });

  it('names nothing that is not there', () => {
    const named = [...Object.values(LAW).flat(), ...Object.entries(IMPORTED_ONLY_BY).flat(2), ...PURE];
    const missing = named.filter((row) => !SOURCES.some(({ name }) => fits(name, row)));
    expect(missing).toEqual([]);
  });

  it.each(SOURCES.map((source) => [source.name, source] as const))('is kept by %s', (_, source) => {
    expect(forbiddenImports(source)).toEqual([]);
  });

  it.each(Object.entries(IMPORTED_ONLY_BY))('lets %s be imported only by %j', (target, by) => {
    const importers = SOURCES.filter(({ imports }) => imports.some((one) => one.isOurs && one.target === target));
    expect(importers.map(({ name }) => name).filter((name) => !by.includes(name))).toEqual([]);
  });

  it.each(PURE)('keeps %s free of everything but types', (name) => {
    const imports = SOURCES.find((source) => source.name === name)?.imports ?? [];
    expect(imports.filter((one) => !one.isTypeOnly).map(({ target }) => target)).toEqual([]);
  });

  it('lets packages be loaded only when they are needed', () => {
    const early = SOURCES.flatMap(({ name, imports }) =>
      imports
        .filter((one) => !one.isOurs && !one.target.startsWith('node:') && !one.isTypeOnly && !one.isDynamic)
        .map((one) => `${name} imports ${one.target}`),
    );
    expect(early).toEqual([]);
  });

  it('lets nothing be imported whose name is computed', () => {
    expect(SOURCES.filter(({ imports }) => imports.some(({ target }) => target === '(computed)'))).toEqual([]);
  });
});

describe.each(ONLY_HERE.map((one) => [one.what, one] as const))('what %s', (_, { calls, where, why }) => {
  it(`is found in ${where.join(', ')} only: ${why}`, () => {
    const found = SOURCES.filter((source) => source.calls.some((call) => calls.test(call))).map(({ name }) => name);
    expect(found.filter((name) => !fitsAny(name, where))).toEqual([]);
    expect(found).not.toEqual([]);
  });
});

describe('the reading of sources', () => {
  it('sees a break of the law, by type or at run time', () => {
    for (const text of ["import type { A } from '../registry/paths.ts';", "await import('../registry/paths.ts');"]) {
      expect(forbiddenImports(parseSource('process/x', text))).toEqual(['process/x imports registry/paths']);
    }
    expect(['attic/x', 'broker/attic/x', 'utils'].map(findRow)).toEqual([undefined, undefined, undefined]);
  });

  it('sees every way to import, and every call', () => {
    const text = `
      import { a } from './a.ts';
      import type { B } from '../room/b.ts';
      import { type C, type D } from 'c';
      import { type E, f } from 'e';
      import g from 'g';
      import 'h';
      export { i } from './i.ts';
      export type { J } from './j.ts';
      const k = await import('k');
      type L = import('./l.ts').L;
      const m = await import(name);
      // process.exit(1) in a comment, 'rm(x)' in a text
      process.exit(0); rm('x'); fs.unlink('y');
    `;
    const { imports, calls } = parseSource('hall/x', text);
    expect(imports.map(({ target, isTypeOnly, isDynamic }) => [target, isTypeOnly, isDynamic])).toEqual([
      ['hall/a', false, false],
      ['room/b', true, false],
      ['c', true, false],
      ['e', false, false],
      ['g', false, false],
      ['h', false, false],
      ['hall/i', false, false],
      ['hall/j', true, false],
      ['k', false, true],
      ['hall/l', true, false],
      ['(computed)', false, true],
    ]);
    expect(calls).toEqual(['process.exit', 'rm', 'fs.unlink']);
  });
});
