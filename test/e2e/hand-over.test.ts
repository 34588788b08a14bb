import { readdir, rm } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { brokerKey, stateLayout } from '../../src/registry/paths.ts';
import { eventually } from '../support/eventually.ts';
import { isAlive } from '../support/processes.ts';
import { createSandbox, type Sandbox } from '../support/sandbox.ts';

const CLIENTS = 8;

async function startedOwner(box: Sandbox) {
  const shim = box.connect(['cat']);
  await shim.echoes('first');
  const record = await box.servingRecord();
  return { shim, record, pid: record.broker?.pid as number };
}

describe('an owner that does not answer', () => {
  it('is passed over once for all who wait, with a line for each; when it wakes it keeps its client and leaves with it', async () => {
    const box = await createSandbox({ CWD_BROKER_WEDGED_MS: '2000', CWD_BROKER_HELLO_MS: '500' });
    const old = await startedOwner(box);
    process.kill(old.pid, 'SIGSTOP');
    const shims = Array.from({ length: CLIENTS }, () => box.connect(['cat']));
    await Promise.all(shims.map((shim, index) => shim.echoes(`waiting ${index}`)));
    for (const shim of shims) expect(shim.stderr).toMatch(/^broker: the broker of .* does not answer; waiting up to 2000 ms/);
    const record = await box.servingRecord();
    expect(record.generation).toBe(old.record.generation + 1);
    expect(record.tookOverAt).toBeGreaterThan(0);
    expect(isAlive(old.pid)).toBe(true);
    process.kill(old.pid, 'SIGCONT');
    await old.shim.echoes('still mine');
    await eventually('the old one knows', async () => {
      const entries = JSON.parse((await box.cli(['ls', '--json'])).stdout) as Array<{ pid: number; verdict: string }>;
      return entries.filter(({ verdict }) => verdict === 'live').length === 2;
    });
    old.shim.end();
    await eventually('the old one leaves', () => !isAlive(old.pid));
    // The successor's files are untouched, and its clients too.
    expect(await box.servingRecord()).toMatchObject({ instance: record.instance });
    await Promise.all(shims.map((shim) => shim.echoes('and on')));
  });

  it('is passed over at most once in ten minutes; after that there is an error, and the command runs without a broker', async () => {
    const box = await createSandbox({ CWD_BROKER_WEDGED_MS: '500', CWD_BROKER_HELLO_MS: '300' });
    const first = await startedOwner(box);
    process.kill(first.pid, 'SIGSTOP');
    const second = await startedOwner(box);
    process.kill(second.pid, 'SIGSTOP');
    const strict = await box.cli(['connect', '--no-fallback', '--', 'echo', 'served']);
    expect(strict).toMatchObject({ code: 1, stdout: '' });
    expect(strict.stderr).toContain('[UNAVAILABLE]');
    expect((await box.cli(['connect', '--', 'echo', 'served'])).stdout).toBe('served\n');
    for (const { pid } of [first, second]) process.kill(pid, 'SIGCONT');
    expect((await box.cli(['connect', '--', 'echo', 'served'])).stdout).toBe('served\n');
  });
});

describe('what a temp cleaner takes', () => {
  it('socket, record or the whole runtime dir: published again, and clients keep working', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000' });
    const { shim, record } = await startedOwner(box);
    const folder = stateLayout(box.stateDir).folder(brokerKey(box.work));
    // A look is due every 30 s, and at every event in the record's folder.
    const losses = [
      () => rm(`${folder}/${record.generation}.json`),
      () => rm(record.socket),
      () => rm(box.runtimeDir, { recursive: true }),
    ];
    for (const lose of losses) {
      await lose();
      await rm(`${folder}/${record.generation}.json`, { force: true });
      await eventually('published again', async () => {
        const now = await box.record();
        return (
          now?.instance === record.instance &&
          (await readdir(box.runtimeDir).catch(() => [])).some((name) => name.endsWith('.sock'))
        );
      });
      await shim.echoes('still here');
      const other = box.connect(['cat']);
      await other.echoes('found it');
      expect(await box.servingRecord()).toMatchObject({ instance: record.instance, generation: record.generation });
    }
  });
});
