import { chmod, writeFile } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { describe, expect, it } from 'vitest';
import { createSandbox, type Ran, type Sandbox } from '../support/sandbox.ts';

/** Commands that do not work, each as a server configuration might name it. */
const COMMANDS: Record<string, (box: Sandbox) => string[]> = {
  missing: () => ['no-such-server-command', '--stdio'],
  'not executable': (box) => [join(box.work, 'plain.txt')],
  'ending at once': () => ['sh', '-c', 'echo "no token" >&2; exit 3'],
  'printing garbage first': () => ['sh', '-c', 'printf "\\000\\377garbage\\n{\\"half\\":"; echo "warning: odd" >&2; cat; exit 4'],
  'ended by a signal': () => ['sh', '-c', 'echo bye >&2; kill -TERM $$'],
};

/** The same command in the place of the shim, with the exit code a shell gives for a signal. */
async function runPlainly(box: Sandbox, command: readonly string[]): Promise<Ran> {
  const result = await execa('sh', ['-c', 'exec "$@"', 'sh', ...command], {
    cwd: box.work,
    env: box.env,
    extendEnv: false,
    reject: false,
    stripFinalNewline: false,
    encoding: 'latin1',
    input: 'hello\n',
  });
  const code = result.exitCode ?? 128 + (constants.signals[result.signal as NodeJS.Signals] ?? 0);
  return { code, stdout: String(result.stdout), stderr: String(result.stderr) };
}

describe('an upstream that does not work', () => {
  for (const [what, makeCommand] of Object.entries(COMMANDS)) {
    it(`${what}: the shim ends as the command itself would, and nothing is left`, async () => {
      const box = await createSandbox();
      await writeFile(join(box.work, 'plain.txt'), 'text\n');
      await chmod(join(box.work, 'plain.txt'), 0o644);
      const command = makeCommand(box);
      const plain = await runPlainly(box, command);
      const shim = box.connect(command);
      let bytes = '';
      shim.child.stdout?.setEncoding('latin1').on('data', (text: string) => {
        bytes += text;
      });
      shim.child.stdin?.end('hello\n');
      expect((await shim.exit).code).toBe(plain.code);
      expect(bytes).toBe(plain.stdout);
      expect(shim.stderr).toBe(plain.stderr);
      await box.isClean();
    });
  }

  it('passes a burst of stderr on whole, also of a server that ends at once', async () => {
    const box = await createSandbox();
    const ran = await box.cli(['connect', '--', 'sh', '-c', 'seq 1 5000 >&2; exit 9']);
    expect(ran.code).toBe(9);
    expect(ran.stderr.trim().split('\n')).toHaveLength(5000);
  });
});
