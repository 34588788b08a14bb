import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { execa } from 'execa';
import { describe, expect, it } from 'vitest';
import { FOLDER_VARIABLES, KNOBS } from '../../src/config.ts';
import { EXIT_REASONS } from '../../src/registry/record.ts';
import { VERDICTS } from '../../src/supervisor/verdict.ts';
import { createSandbox, type Sandbox } from '../support/sandbox.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** With the padding of its tables taken out. */
const README = (await readFile(join(ROOT, 'README.md'), 'utf8')).replace(/ +\|/g, ' |');

/** The fenced blocks of one language. */
function blocks(language: string): string[] {
  return [...README.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'gm'))].map((match) => match[1] as string);
}

/** Command lines in shell blocks, comments cut off. */
const COMMANDS = blocks('sh').flatMap((block) =>
  block
    .split('\n')
    .map((line) => line.replace(/\s+#.*$/, '').trim())
    .filter(Boolean),
);

/** A PATH as after an installation: `broker` is this build, `npx` finds the one server the README names. */
async function installedPath(box: Sandbox): Promise<string> {
  const bin = join(box.dir, 'bin');
  await mkdir(bin);
  const server = createRequire(import.meta.url).resolve('@modelcontextprotocol/server-everything/dist/index.js');
  const scripts = {
    broker: `exec "${process.execPath}" "${box.brokerScript}" "$@"`,
    npx: `[ "$1 $2" = "-y @modelcontextprotocol/server-everything" ] || exit 64; shift 2; exec "${process.execPath}" "${server}" "$@"`,
  };
  for (const [name, script] of Object.entries(scripts)) {
    await writeFile(join(bin, name), `#!/bin/sh\n${script}\n`);
    await chmod(join(bin, name), 0o755);
  }
  return `${bin}:${process.env.PATH}`;
}

describe('README', () => {
  it('every broker command in it runs', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '30000' });
    const PATH = await installedPath(box);
    await box.cli(['connect', '--', 'true']);
    const ours = COMMANDS.filter((line) => line.startsWith('broker '));
    expect(ours.length).toBeGreaterThan(15);
    for (const line of ours) {
      const ran = await execa('sh', ['-c', line], {
        cwd: box.work,
        env: { ...box.env, PATH },
        extendEnv: false,
        reject: false,
        input: 'hi\n',
      });
      expect(ran.exitCode, `${line}\n${ran.stderr}`).toBe(0);
      if (line.includes('-- cat')) expect(ran.stdout).toBe('hi');
    }
  });

  it('every other command in it is a script of this package', async () => {
    const { scripts } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
    const others = COMMANDS.filter((line) => !line.startsWith('broker '));
    expect(others).toEqual(['npm ci && npm run demo', 'npm ci && npm test']);
    const named = [...README.matchAll(/npm run ([a-z:]+)/g)].map((match) => match[1] as string);
    for (const name of [...named, 'demo', 'test']) expect(Object.keys(scripts)).toContain(name);
  });

  it('the client configuration in it works for a real client', async () => {
    const box = await createSandbox();
    const [configuration, hooks] = blocks('json').map((block) => JSON.parse(block));
    const { command, args } = configuration.mcpServers.everything;
    const PATH = await installedPath(box);
    const client = new Client({ name: 'readme', version: '1.0.0' });
    await client.connect(new StdioClientTransport({ command, args, cwd: box.work, env: { ...box.env, PATH }, stderr: 'ignore' }));
    expect((await client.listTools()).tools.length).toBeGreaterThan(5);
    await client.close();
    for (const [event, [{ hooks: handlers }]] of Object.entries(
      hooks.hooks as Record<string, [{ hooks: [{ command: string }] }]>,
    )) {
      const ran = await execa('sh', ['-c', handlers[0].command], {
        cwd: box.work,
        env: { ...box.env, PATH },
        extendEnv: false,
        input: '{}',
      });
      expect([ran.stdout, ran.stderr], event).toEqual(['', '']);
    }
  });

  it('the library example in it runs', async () => {
    const box = await createSandbox();
    const [example = ''] = blocks('js');
    // `await using` is newer than the oldest Node that is supported; a package importing itself needs a package.
    const script = example
      .replace("'cwd-broker'", JSON.stringify(join(ROOT, 'dist/lib/index.js')))
      .replace('await using', 'const');
    await writeFile(join(box.work, 'example.mjs'), `${script}\nbroker.close();\n`);
    const ran = await execa(process.execPath, ['example.mjs'], {
      cwd: box.work,
      env: box.env,
      extendEnv: false,
      timeout: 20_000,
    });
    expect(ran.stdout.trim()).toBe('{"jsonrpc":"2.0","id":1,"method":"ping"}');
  });

  it('names every knob with its default and range, and no other', () => {
    const rows = [...README.matchAll(/^\| `(CWD_BROKER_\w+)` \| `(\w+)` \| (\d+) \| (\d+)–(\d+) \| (.+) \|$/gm)].map((match) =>
      match.slice(1),
    );
    expect(rows).toEqual(
      Object.entries(KNOBS).map(([name, knob]) =>
        [knob.variable, name, knob.default, knob.min, knob.max, knob.meaning].map(String),
      ),
    );
    const known: string[] = [...Object.values(KNOBS).map(({ variable }) => variable), ...FOLDER_VARIABLES];
    for (const [name] of README.matchAll(/CWD_BROKER_[A-Z_]+/g)) expect(known).toContain(name);
    for (const name of known) expect(README).toContain(name);
  });

  it('names every exit reason in order of priority, and every verdict', () => {
    const table = (heading: string): string[] => {
      const rows = README.split(heading)[1]?.split('\n\n')[0] ?? '';
      return rows
        .split('\n')
        .slice(1)
        .flatMap((row) => [...(row.split('|')[1] ?? '').matchAll(/`([a-z-]+)`/g)].map((match) => match[1] as string));
    };
    expect(table('| reason | when |')).toEqual([...EXIT_REASONS]);
    expect(table('| verdict | means | `broker reap` |').sort()).toEqual([...VERDICTS].sort());
  });

  it('names only files that exist', async () => {
    const section = README.split('## Where is')[1]?.split('##')[0] ?? '';
    const files = [...section.matchAll(/`([a-z/-]+\.ts)`/g)].map((match) => match[1] as string);
    expect(files.length).toBeGreaterThan(10);
    for (const file of files) await readFile(join(ROOT, 'src', file));
  });
});
