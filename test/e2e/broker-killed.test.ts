import { describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { isAlive } from '../support/processes.ts';
import { createSandbox, type Sandbox } from '../support/sandbox.ts';

/** A broker under SIGKILL, with a helper that ignores the end of stdin and SIGTERM. */
async function killBroker(box: Sandbox): Promise<{ helper: number; broker: number }> {
  const shim = box.connect(['node', box.fixture('tree.mjs'), 'never', 'child']);
  await shim.says('\n');
  const helper = Number(/pids (\d+)/.exec(shim.stdout)?.[1]);
  const broker = (await box.servingRecord()).broker?.pid as number;
  process.kill(broker, 'SIGKILL');
  expect((await shim.exit).code).toBe(1);
  expect(shim.stderr).toContain('connection to the broker is lost');
  expect(isAlive(helper)).toBe(true);
  return { helper, broker };
}

describe('a broker is killed with SIGKILL', () => {
  it('the next `broker ls` says so, and one `reap` ends what ignored the end of stdin', async () => {
    const box = await createSandbox();
    const { helper, broker } = await killBroker(box);
    const [entry] = JSON.parse((await box.cli(['ls', '--json'])).stdout);
    expect(entry).toMatchObject({ cwd: box.work, pid: broker, verdict: 'orphan' });
    expect((await box.cli(['ls'])).stdout).toContain('its process is gone');
    const dry = JSON.parse((await box.cli(['reap', '--dry-run', '--json'])).stdout);
    expect(dry.actions).toContainEqual(expect.objectContaining({ verdict: 'orphan', action: 'sigterm', pids: [helper] }));
    expect(isAlive(helper)).toBe(true);
    const reaped = JSON.parse((await box.cli(['reap', '--json'])).stdout);
    expect(reaped.isUnfinished).toBe(false);
    expect(reaped.actions.map(({ action }: { action: string }) => action)).toEqual(['sigterm', 'sigkill', 'retire']);
    await box.isClean();
    expect(await box.record()).toMatchObject({ phase: 'stopped', end: { by: 'reap', verdict: 'orphan' } });
  });

  it('a helper that ends on end of stdin ends by itself', async () => {
    const box = await createSandbox();
    const shim = box.connect(['cat']);
    await shim.echoes('hello');
    process.kill((await box.servingRecord()).broker?.pid as number, 'SIGKILL');
    await eventually('nothing runs', () => box.processes().length === 0);
    const [entry] = JSON.parse((await box.cli(['ls', '--json'])).stdout);
    expect(entry).toMatchObject({ verdict: 'stale' });
  });

  it('the next use works at the first try, and the new broker cleans up after the old one', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '20000' });
    const { helper } = await killBroker(box);
    const shim = box.connect(['cat']);
    await shim.echoes('works');
    expect(shim.stderr).toBe('');
    await eventually('the old helper is gone', () => !isAlive(helper), 20_000);
    await shim.echoes('and still does');
  });

  it('the SessionStart hook cleans up, silently', async () => {
    const box = await createSandbox();
    const { helper } = await killBroker(box);
    const input = JSON.stringify({ session_id: 's1', cwd: box.work, hook_event_name: 'SessionStart' });
    expect(await box.cli(['hook', 'session-start'], { input })).toEqual({ code: 0, stdout: '', stderr: '' });
    await eventually('the helper is gone', () => !isAlive(helper), 20_000);
    await eventually('the record is retired', async () => (await box.record())?.phase === 'stopped', 20_000);
  });
});
