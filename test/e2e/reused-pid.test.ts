import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { identify } from '../../src/process/identity.ts';
import { brokerKey, stateLayout } from '../../src/registry/paths.ts';
import { eventually } from '../support/eventually.ts';
import { isAlive } from '../support/processes.ts';
import { createSandbox, type Sandbox } from '../support/sandbox.ts';

/** A stranger under a pid of the test's choosing; only root may say which pid comes next. */
async function spawnAs(pid: number, box: Sandbox): Promise<ReturnType<typeof spawn> | undefined> {
  for (let tries = 0; tries < 50; tries += 1) {
    try {
      writeFileSync('/proc/sys/kernel/ns_last_pid', String(pid - 1));
    } catch {
      return undefined;
    }
    const child = spawn('sleep', ['600'], { detached: true, stdio: 'ignore', env: box.env });
    await once(child, 'spawn');
    if (child.pid === pid) return child;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
  return undefined;
}

describe('a pid that was used again', () => {
  it('is never signalled, whichever command looks at it', async (context) => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000' });
    const shim = box.connect(['node', box.fixture('tree.mjs'), 'never']);
    await shim.says('\n');
    const record = await box.servingRecord();
    const brokerPid = record.broker?.pid as number;
    const helperPid = record.children[0]?.pid as number;
    for (const pid of [brokerPid, helperPid]) process.kill(pid, 'SIGKILL');
    await shim.exit;
    await eventually('both are gone', () => !isAlive(brokerPid) && !isAlive(helperPid));
    // Zombies keep their pid; wait until the numbers are free.
    await eventually('the pids are free', () => ![brokerPid, helperPid].some((pid) => isListed(pid)));
    const strangers = [await spawnAs(brokerPid, box), await spawnAs(helperPid, box)];
    try {
      if (strangers.includes(undefined)) return context.skip('this user cannot choose the next pid');
      expect(identify(brokerPid)?.startTime).not.toBe(record.broker?.startTime);
      const [entry] = JSON.parse((await box.cli(['ls', '--json'])).stdout);
      expect(entry).toMatchObject({ verdict: 'stale', why: ['its pid belongs to another process now'] });
      await box.cli(['stop', '--force']);
      await box.cli(['hook', 'session-start'], { input: '{}' });
      expect(JSON.parse((await box.cli(['reap', '--json'])).stdout).isUnfinished).toBe(false);
      expect(strangers.map((one) => isAlive(one?.pid as number))).toEqual([true, true]);
      expect((await box.record())?.phase).toBe('stopped');
    } finally {
      for (const stranger of strangers) stranger?.kill('SIGKILL');
    }
  });

  it('of another group is not signalled although the leader named beside it is ours', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000' });
    await box.cli(['connect', '--', 'true']);
    const record = await box.servingRecord();
    process.kill(record.broker?.pid as number, 'SIGKILL');
    await eventually('the broker is gone', () => !isAlive(record.broker?.pid as number));
    const [ours, stranger] = [0, 1].map(() => spawn('sleep', ['600'], { detached: true, stdio: 'ignore', env: box.env }));
    onTestFinished(() => {
      ours?.kill('SIGKILL');
      stranger?.kill('SIGKILL');
    });
    const file = `${stateLayout(box.stateDir).folder(brokerKey(box.work))}/${record.generation}.json`;
    const pid = ours?.pid as number;
    const child = {
      id: 'u9',
      kind: 'upstream',
      pid,
      startTime: identify(pid)?.startTime,
      pgid: stranger?.pid,
      command: ['x'],
      startedAt: 1,
      known: [],
    };
    writeFileSync(file, JSON.stringify({ ...record, children: [child] }));
    await box.cli(['reap']);
    await box.cli(['stop', '--all', '--force']);
    expect(isAlive(stranger?.pid as number)).toBe(true);
    writeFileSync(file, JSON.stringify(record));
  });

  it('is not even asked when the record was forged to name a stranger', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000' });
    await box.cli(['connect', '--', 'true']);
    const record = await box.servingRecord();
    process.kill(record.broker?.pid as number, 'SIGKILL');
    await eventually('the broker is gone', () => !isAlive(record.broker?.pid as number));
    const stranger = spawn('sleep', ['600'], { detached: true, stdio: 'ignore', env: box.env });
    await once(stranger, 'spawn');
    onTestFinished(() => void stranger.kill('SIGKILL'));
    const file = `${stateLayout(box.stateDir).folder(brokerKey(box.work))}/${record.generation}.json`;
    const pid = stranger.pid as number;
    const child = {
      id: 'u9',
      kind: 'upstream',
      pid,
      startTime: '1',
      pgid: pid,
      command: ['x'],
      startedAt: 1,
      known: [{ pid, startTime: '2' }],
    };
    writeFileSync(
      file,
      JSON.stringify({ ...JSON.parse(readFileSync(file, 'utf8')), broker: { ...record.broker, pid }, children: [child] }),
    );
    await box.cli(['reap']);
    await box.cli(['stop', '--all', '--force']);
    expect(isAlive(pid)).toBe(true);
  });
});

function isListed(pid: number): boolean {
  try {
    readFileSync(`/proc/${pid}/stat`);
    return true;
  } catch {
    return false;
  }
}
