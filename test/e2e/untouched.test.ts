import { describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { createSandbox } from '../support/sandbox.ts';

const SWEEPS = 20;
const INPUT = JSON.stringify({ session_id: 'other-session', cwd: '/', hook_event_name: 'SessionStart' });

describe('a healthy broker is left alone', () => {
  for (const isAttached of [true, false]) {
    it(`${isAttached ? 'idle with a client attached' : 'idle within its grace'}, during ${SWEEPS} sweeps and hooks`, async () => {
      const box = await createSandbox({ CWD_BROKER_GRACE_MS: '300000' });
      const shim = box.connect(['cat']);
      await shim.echoes('hello');
      if (!isAttached) {
        shim.end();
        await shim.exit;
      }
      const before = await eventually('the record is settled', async () => {
        const record = await box.servingRecord();
        return record.children.length === (isAttached ? 1 : 0) ? record : undefined;
      });
      for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
        const [reaped, hooked] = await Promise.all([
          box.cli(['reap', '--json'], { cwd: '/' }),
          box.cli(['hook', sweep % 2 ? 'session-start' : 'session-end'], { cwd: '/', input: INPUT }),
        ]);
        expect(JSON.parse(reaped.stdout)).toEqual({ actions: [], isUnfinished: false });
        expect(hooked).toEqual({ code: 0, stdout: '', stderr: '' });
      }
      expect(await box.record()).toEqual(before);
      const [entry] = JSON.parse((await box.cli(['ls', '--json'])).stdout);
      expect(entry).toMatchObject({ pid: before.broker?.pid, verdict: 'live', clients: isAttached ? 1 : 0 });
      if (isAttached) await shim.echoes('still mine');
    });
  }

  it('nobody attached is no reason: reap leaves a broker that was never used', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '300000' });
    await box.cli(['connect', '--', 'true']);
    const { instance } = await box.servingRecord();
    await box.cli(['reap']);
    expect(await box.servingRecord()).toMatchObject({ instance, phase: 'serving' });
  });
});
