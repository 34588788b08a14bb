import { chmod, mkdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { describe, expect, it } from 'vitest';
import { createSandbox, type Sandbox } from '../support/sandbox.ts';

const COMMAND = ['sh', '-c', 'cat; echo done; echo warned >&2; exit 6'];

async function expectDirectRun(box: Sandbox, env: Record<string, string>, reason: RegExp): Promise<void> {
  const ran = await box.cli(['connect', '--', ...COMMAND], { env, input: 'hello\n' });
  expect(ran.code).toBe(6);
  expect(ran.stdout).toBe('hello\ndone\n');
  const [ours, ...others] = ran.stderr.trim().split('\n').sort();
  expect(ours).toMatch(reason);
  expect(ours).toMatch(/^broker: no broker .*running the command directly$/);
  expect(others).toEqual(['warned']);
  const strict = await box.cli(['connect', '--no-fallback', '--', ...COMMAND], { env, input: '' });
  expect(strict).toMatchObject({ code: 1, stdout: '' });
  expect(strict.stderr).toMatch(/\n {2}hint: {2}/);
}

describe('no broker can be had', () => {
  it('runtime dir is a symlink, open to others, or not a directory: the command runs all the same', async () => {
    const box = await createSandbox();
    const open = join(box.dir, 'open');
    await mkdir(open);
    await chmod(open, 0o777);
    await symlink(open, join(box.dir, 'link'));
    await expectDirectRun(box, { CWD_BROKER_RUNTIME_DIR: join(box.dir, 'link') }, /refused: it is a symbolic link/);
    await expectDirectRun(box, { CWD_BROKER_RUNTIME_DIR: open }, /refused: its mode is 0777/);
    await expectDirectRun(box, { CWD_BROKER_RUNTIME_DIR: '/dev/null' }, /refused: it is not a directory/);
    expect(box.processes()).toEqual([]);
  });

  it('state dir cannot be made: the command runs all the same', async () => {
    const box = await createSandbox();
    await expectDirectRun(box, { CWD_BROKER_STATE_DIR: '/dev/null/state' }, /cannot write the state dir/);
  });

  it('the disk is full: the command runs all the same', async (context) => {
    const box = await createSandbox();
    const full = join(box.dir, 'full');
    await mkdir(full);
    // A file system of a few pages in a mount namespace of its own, filled to the last byte.
    const inside = `mount -t tmpfs -o size=16k tmpfs ${full} && { cat /dev/zero > ${full}/filler 2>/dev/null; exec ${process.execPath} ${box.brokerScript} connect -- ${COMMAND.slice(0, 2).join(' ')} '${COMMAND[2]}'; }`;
    const ran = await execa('unshare', ['--user', '--map-root-user', '--mount', 'sh', '-c', inside], {
      cwd: box.work,
      env: { ...box.env, CWD_BROKER_STATE_DIR: full },
      extendEnv: false,
      reject: false,
      input: 'hello\n',
    });
    if (/unshare|mount:/.test(String(ran.stderr))) return context.skip('this system has no user namespaces');
    expect(ran.exitCode).toBe(6);
    expect(ran.stdout).toBe('hello\ndone');
    expect(String(ran.stderr)).toMatch(/no broker \(cannot write a record .*ENOSPC/);
  });

  it('supervises the command itself: signals run the ladder and nothing is left', async () => {
    const box = await createSandbox();
    const shim = box.connect(['node', box.fixture('tree.mjs'), 'never', 'child', 'escape'], {
      env: { CWD_BROKER_RUNTIME_DIR: '/dev/null' },
    });
    await shim.says('\n');
    shim.child.kill('SIGTERM');
    expect((await shim.exit).code).toBe(143);
    await box.isClean();
  });

  it('a working directory that is not there is an error of its own, and nothing runs', async () => {
    const box = await createSandbox();
    const ran = await box.cli(['connect', '--cwd', join(box.dir, 'nowhere'), '--', 'echo', 'ran']);
    expect(ran).toMatchObject({ code: 1, stdout: '' });
    expect(ran.stderr).toContain('working directory');
  });
});
