import { mkdir, rename, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, type onTestFinished } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { createSandbox, type Sandbox } from '../support/sandbox.ts';

/** With clients, without; the ladder of a server that ends on end of stdin comes on top. */
const LIMIT_MS = { attached: 20_000, idle: 30_000 } as const;
const LADDER_MS = 3_000;

/** Each works on `<dir>/parent/work`. */
const CHANGES: Record<string, (root: string, parent: string) => Promise<void>> = {
  deleted: (root) => rm(root, { recursive: true }),
  renamed: (root) => rename(root, `${root}-elsewhere`),
  'deleted and re-created at once': async (root) => {
    await rm(root, { recursive: true });
    await mkdir(root);
  },
  'replaced by a symlink': async (root, parent) => {
    await mkdir(join(parent, 'target'));
    await rm(root, { recursive: true });
    await symlink(join(parent, 'target'), root);
  },
  'in a parent that is renamed': (_root, parent) => rename(parent, `${parent}-elsewhere`),
};

async function makeRoot(onFinished: typeof onTestFinished): Promise<{ box: Sandbox; root: string; parent: string }> {
  const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000' }, onFinished);
  const parent = join(box.dir, 'parent');
  const root = join(parent, 'work');
  await mkdir(root, { recursive: true });
  return { box, root, parent };
}

async function isAllGone(box: Sandbox, root: string, limitMs: number): Promise<void> {
  await eventually('everything is gone', () => box.processes().length === 0, limitMs);
  expect((await box.record(root))?.end).toMatchObject({ by: 'broker', reason: 'cwd-gone' });
  expect(await box.runtimeFiles()).toEqual([]);
}

describe.concurrent('the directory goes', () => {
  for (const [what, change] of Object.entries(CHANGES)) {
    it(`${what}, with a client: broker, server and shim are gone`, async ({ onTestFinished: onFinished }) => {
      const { box, root, parent } = await makeRoot(onFinished);
      const shim = box.connect(['node', box.fixture('tree.mjs'), 'eof'], { cwd: root });
      await shim.says('pids ');
      await change(root, parent);
      await isAllGone(box, root, LIMIT_MS.attached + LADDER_MS);
      expect(await shim.exit).toEqual({ code: 1, signal: null });
      expect(shim.stderr).toContain('cwd-gone');
    });

    it(`${what}, without a client: the broker is gone`, async ({ onTestFinished: onFinished }) => {
      const { box, root, parent } = await makeRoot(onFinished);
      await box.cli(['connect', '--', 'true'], { cwd: root });
      await box.servingRecord(root);
      await change(root, parent);
      await isAllGone(box, root, LIMIT_MS.idle + LADDER_MS);
    });
  }

  it('a client in a directory that was made anew gets a broker of the new one', async ({ onTestFinished: onFinished }) => {
    const { box, root } = await makeRoot(onFinished);
    const before = box.connect(['cat'], { cwd: root });
    await before.echoes('old');
    const old = await box.servingRecord(root);
    await rename(root, `${root}-old`);
    await mkdir(root);
    const after = box.connect(['pwd', '-P'], { cwd: root });
    expect(await after.exit).toEqual({ code: 0, signal: null });
    expect(after.stdout).toBe(`${root}\n`);
    const record = await box.record(root);
    expect(record?.generation).toBeGreaterThan(old.generation);
    expect(record?.cwd.ino).not.toBe(old.cwd.ino);
    expect((await before.exit).code).toBe(1);
  });

  it('moved away and back at once: nothing happens', async ({ onTestFinished: onFinished }) => {
    const { box, root } = await makeRoot(onFinished);
    const shim = box.connect(['cat'], { cwd: root });
    await shim.echoes('before');
    for (let times = 0; times < 10; times += 1) {
      await rename(root, `${root}-away`);
      await rename(`${root}-away`, root);
    }
    const { generation } = await box.servingRecord(root);
    // Long enough for a wrong decision: three probes a second apart and the ladder.
    const until = performance.now() + 4_000;
    for (let count = 0; performance.now() < until; count += 1) await shim.echoes(`still here ${count}`);
    expect(await box.servingRecord(root)).toMatchObject({ generation });
  });
});
