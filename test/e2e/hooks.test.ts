import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { isAlive } from '../support/processes.ts';
import { createSandbox, type Sandbox } from '../support/sandbox.ts';

const SILENT = { code: 0, stdout: '', stderr: '' };

function input(box: Sandbox, sessionId: string): string {
  return JSON.stringify({ session_id: sessionId, cwd: box.work, hook_event_name: 'SessionStart', unknown: { fields: [] } });
}

describe('hooks', () => {
  it('never fail a host session, whatever they are given', async () => {
    const box = await createSandbox();
    for (const text of [
      '',
      '{',
      '[]',
      'null',
      '{"session_id":"../../etc"}',
      '{"session_id":7,"cwd":[]}',
      'x'.repeat(2_000_000),
    ]) {
      for (const name of ['session-start', 'session-end']) {
        expect(await box.cli(['hook', name], { input: text }), `${name} with ${text.slice(0, 30)}`).toEqual(SILENT);
      }
    }
    expect((await box.cli(['hook', 'no-such-hook'], { input: '{}' })).code).toBe(0);
    const broken = await box.cli(['hook', 'session-start'], { input: '{}', env: { CWD_BROKER_GRACE_MS: 'never' } });
    expect(broken).toMatchObject({ code: 0, stdout: '' });
    expect(broken.stderr).toContain('CWD_BROKER_GRACE_MS');
  });

  it('do not wait for a stdin that stays open', async () => {
    const box = await createSandbox();
    const child = spawn(process.execPath, [box.brokerScript, 'hook', 'session-start'], {
      cwd: box.work,
      env: box.env,
      stdio: 'pipe',
    });
    const code = await new Promise((resolve) => child.once('exit', resolve));
    expect(code).toBe(0);
    child.stdin.destroy();
  });

  it('take a hold for the host session and give back that hold only', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000' });
    const env = { CLAUDE_PID: String(process.pid) };
    for (const id of ['session-a', 'session-b'])
      expect(await box.cli(['hook', 'session-start'], { input: input(box, id), env })).toEqual(SILENT);
    const shim = box.connect(['cat']);
    await shim.echoes('mine');
    const [entry] = JSON.parse((await box.cli(['ls', '--json'])).stdout);
    expect(entry.holds.map(({ sessionId, alive }: { sessionId: string; alive: boolean }) => [sessionId, alive]).sort()).toEqual([
      ['session-a', true],
      ['session-b', true],
    ]);
    expect(await box.cli(['hook', 'session-end'], { cwd: '/', input: input(box, 'session-a') })).toEqual(SILENT);
    await shim.echoes('still mine');
    const holds = join(box.stateDir, 'holds');
    expect([existsSync(join(holds, 'session-a.json')), existsSync(join(holds, 'session-b.json'))]).toEqual([false, true]);
  });

  it('the end of the last host session shortens the grace to seconds, but only when nobody is attached', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '600000' });
    await box.cli(['hook', 'session-start'], { input: input(box, 'only'), env: { CLAUDE_PID: String(process.pid) } });
    const shim = box.connect(['cat']);
    await shim.echoes('busy');
    shim.end();
    await shim.exit;
    const { broker } = await box.servingRecord();
    await box.cli(['hook', 'session-end'], { input: input(box, 'only') });
    await eventually('the broker is gone', () => !isAlive(broker?.pid as number), 15_000);
    expect((await box.record())?.end).toMatchObject({ reason: 'idle' });
  });

  it('a hold whose host session was killed is dropped by the next reap', async () => {
    const box = await createSandbox();
    const host = spawn('sleep', ['600'], { env: box.env, stdio: 'ignore' });
    await box.cli(['hook', 'session-start'], { input: input(box, 'killed'), env: { CLAUDE_PID: String(host.pid) } });
    const hold = join(box.stateDir, 'holds', 'killed.json');
    expect(existsSync(hold)).toBe(true);
    await box.cli(['reap']);
    expect(existsSync(hold)).toBe(true);
    host.kill('SIGKILL');
    await eventually('the host is gone', () => !isAlive(host.pid as number));
    expect((await box.cli(['reap'])).stdout).toContain('dropped the hold');
    expect(existsSync(hold)).toBe(false);
  });

  it('a session that ends after its directory was removed gives the right hold back', async () => {
    const box = await createSandbox();
    await box.cli(['hook', 'session-start'], { input: input(box, 'moved'), env: { CLAUDE_PID: String(process.pid) } });
    await rm(box.work, { recursive: true });
    const elsewhere = JSON.stringify({ session_id: 'moved', cwd: '/', hook_event_name: 'SessionEnd' });
    expect(await box.cli(['hook', 'session-end'], { cwd: '/', input: elsewhere })).toEqual(SILENT);
    expect(existsSync(join(box.stateDir, 'holds', 'moved.json'))).toBe(false);
  });
});
