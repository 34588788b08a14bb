// Builds dist/: one CommonJS bundle each for the CLI and the daemon, the CLI's libraries in files of
// their own, and the library with its types.
import { execFileSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));
const require = createRequire(import.meta.url);

const common = {
  absWorkingDir: root,
  outdir: 'dist',
  bundle: true,
  platform: 'node',
  target: 'node20.19',
  // Smaller files start faster; names stay, so that a stack trace in a log can be read.
  minifySyntax: true,
  minifyWhitespace: true,
  keepNames: true,
  legalComments: 'none',
  logLevel: 'warning',
};
const commonjs = {
  ...common,
  format: 'cjs',
  outExtension: { '.js': '.cjs' },
  define: { 'import.meta.url': '__bundleUrl' },
  banner: { js: "const __bundleUrl = require('node:url').pathToFileURL(__filename).href;" },
  // A lazily imported file is required: the loader of modules alone would cost as much as the file.
  supported: { 'dynamic-import': false },
};

/** Libraries the CLI loads where it needs them. In the one bundle they would be parsed at every start. */
const libraries = ['chokidar', 'commander', 'pidusage', 'proper-lockfile'];
const librariesApart = {
  name: 'libraries-apart',
  setup({ onResolve }) {
    onResolve({ filter: new RegExp(`^(${libraries.join('|')})$`) }, ({ path, kind }) =>
      kind === 'entry-point' ? undefined : { path: `./libraries/${path}.cjs`, external: true },
    );
  },
};

rmSync(`${root}dist`, { recursive: true, force: true });
await Promise.all([
  build({ ...commonjs, entryPoints: { broker: 'src/cli/program.ts' }, plugins: [librariesApart] }),
  build({ ...commonjs, entryPoints: Object.fromEntries(libraries.map((name) => [`libraries/${name}`, name])) }),
  // The daemon holds all it needs: an upgrade may remove its files while it runs.
  build({ ...commonjs, entryPoints: { brokerd: 'src/broker/main.ts' } }),
  build({ ...common, format: 'esm', entryPoints: { 'lib/index': 'src/index.ts' }, packages: 'external' }),
]);
execFileSync(process.execPath, [require.resolve('typescript/bin/tsc'), '-p', 'tsconfig.lib.json'], {
  cwd: root,
  stdio: 'inherit',
});
