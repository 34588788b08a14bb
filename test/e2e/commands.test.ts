import { spawn } from 'node:child_process';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { describe, expect, it } from 'vitest';
import { brokerKey, stateLayout } from '../../src/registry/paths.ts';
import { eventually } from '../support/eventually.ts';
import { isAlive } from '../support/processes.ts';
import { createSandbox, type Sandbox } from '../support/sandbox.ts';

async function used(box: Sandbox) {
  const shim = box.connect(['cat']);
  await shim.echoes('hello');
  return shim;
}

describe('commands that only look', () => {
  it('never start a broker, and say that there is none', async () => {
    const box = await createSandbox();
    expect(await box.cli(['ls'])).toEqual({ code: 0, stdout: 'No brokers.\n', stderr: '' });
    expect(await box.cli(['ls', '--json'])).toMatchObject({ code: 0, stdout: '[]\n' });
    expect(await box.cli(['status'])).toMatchObject({ code: 3, stdout: '' });
    expect(await box.cli(['logs'])).toMatchObject({ code: 3, stdout: '' });
    expect(await box.cli(['stop'])).toMatchObject({ code: 0, stdout: 'Nothing to stop.\n' });
    expect(await box.cli(['stop', '--all'])).toMatchObject({ code: 0 });
    expect(await box.cli(['check', '.'])).toEqual({ code: 0, stdout: '', stderr: '' });
    expect(await box.cli(['check', join(box.dir, 'no/such/path')])).toEqual({ code: 0, stdout: '', stderr: '' });
    expect(await box.cli(['reap'])).toMatchObject({ code: 0, stdout: 'Nothing to reap.\n' });
    expect((await box.cli(['doctor'])).code).toBe(0);
    expect(box.processes()).toEqual([]);
    expect(await box.record()).toBeUndefined();
  });

  it('status says who uses a broker, why it is up, and what it costs', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000' });
    const shim = await used(box);
    const busy = JSON.parse((await box.cli(['status', '--json'])).stdout);
    expect(busy).toMatchObject({ verdict: 'live', clients: 1, why: ['1 client attached'], directory: 'same', watch: 'events' });
    expect(busy.cost.processes).toBe(2);
    expect(busy.cost.rssBytes).toBeGreaterThan(busy.cost.privateBytes);
    expect(busy).not.toHaveProperty('exitsAt');
    shim.end();
    await shim.exit;
    const text = (await box.cli(['status'])).stdout;
    expect(text).toMatch(/why +within its grace, exits in (5\d|60)s/);
    const idle = JSON.parse((await box.cli(['status', '--json'])).stdout);
    expect(Date.parse(idle.exitsAt) - Date.parse(idle.idleSince)).toBeGreaterThan(59_000);
  });

  it('do not keep a broker up, however often they ask', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '2000' });
    await box.cli(['connect', '--', 'true']);
    const { broker } = await box.servingRecord();
    const until = performance.now() + 8_000;
    while (isAlive(broker?.pid as number) && performance.now() < until) await box.cli(['status', '--json']);
    expect(isAlive(broker?.pid as number)).toBe(false);
    expect((await box.record())?.end).toMatchObject({ reason: 'idle' });
  });

  it('end quietly when nobody reads on', async () => {
    const box = await createSandbox();
    for (const args of ['ls', 'ls --json', 'help connect', '--help', 'doctor']) {
      const ran = await execa('sh', ['-c', `"${process.execPath}" "${box.brokerScript}" ${args} | true`], {
        env: box.env,
        extendEnv: false,
      });
      expect(ran.stderr, args).toBe('');
    }
  });

  it('find the broker of a directory that is gone', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000' });
    await used(box);
    const { broker } = await box.servingRecord();
    process.kill(broker?.pid as number, 'SIGSTOP');
    await rename(box.work, `${box.work}-gone`);
    const [entry] = JSON.parse((await box.cli(['ls', '--json'], { cwd: '/', env: { CWD_BROKER_HELLO_MS: '300' } })).stdout);
    expect(entry).toMatchObject({ cwd: box.work, verdict: 'wedged' });
    expect((await box.cli(['status', box.work], { cwd: '/', env: { CWD_BROKER_HELLO_MS: '300' } })).code).toBe(0);
    process.kill(broker?.pid as number, 'SIGCONT');
    await eventually('the broker leaves', () => !isAlive(broker?.pid as number), 25_000);
  });

  it('logs shows the end of the log, and follows it', async () => {
    const box = await createSandbox();
    const shim = await used(box);
    const events = (await box.cli(['logs', '-n', '2'])).stdout.trim().split('\n');
    expect(events.map((line) => JSON.parse(line).event)).toEqual(['phase', 'upstream.started']);
    const follow = spawn(process.execPath, [box.brokerScript, 'logs', '-f', '-n', '0'], { cwd: box.work, env: box.env });
    let text = '';
    follow.stdout.on('data', (chunk) => {
      text += chunk;
    });
    // The follower is ready once it reports something that happened after it started.
    await eventually('a line is followed', async () => {
      await box.cli(['connect', '--', 'true']);
      return text.includes('upstream.exited');
    });
    follow.kill();
    shim.end();
  });

  it('report a record that cannot be read, and skip it', async () => {
    const box = await createSandbox();
    const folder = stateLayout(box.stateDir).folder(brokerKey(box.work));
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, '1.json'), '{"schema":1,"gener');
    await mkdir(`${folder}-other`);
    await writeFile(join(`${folder}-other`, '4.json'), '{"schema":99}');
    const entries = JSON.parse((await box.cli(['ls', '--json'])).stdout);
    expect(entries.map(({ verdict }: { verdict: string }) => verdict)).toEqual(['unknown', 'unknown']);
    const doctor = await box.cli(['doctor']);
    expect(doctor.stdout).toContain('cannot be read');
    expect(doctor.stdout).toContain('newer version (schema 99)');
    await used(box);
    await rm(join(`${folder}-other`), { recursive: true });
    await rm(join(folder, '1.json'));
  });
});

describe('commands that end something', () => {
  it('stop ends a broker with its clients, is idempotent, and the next use works', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000' });
    const shim = await used(box);
    const stopped = await box.cli(['stop']);
    expect(stopped).toMatchObject({ code: 0, stderr: '' });
    expect(stopped.stdout).toContain('stopped');
    expect(await shim.exit).toEqual({ code: 1, signal: null });
    expect(shim.stderr).toBe('broker: the broker leaves: requested\n');
    expect(await box.cli(['stop'])).toMatchObject({ code: 0, stdout: 'Nothing to stop.\n' });
    expect((await box.record())?.end).toMatchObject({ reason: 'requested' });
    await used(box);
  });

  it('two stops at once are one shutdown; stop, then use at once works', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000' });
    for (let round = 0; round < 5; round += 1) {
      await used(box);
      const [one, two, shim] = [box.cli(['stop']), box.cli(['stop']), box.connect(['cat'])];
      expect([(await one)?.code, (await two)?.code]).toEqual([0, 0]);
      // A client that was attached a moment before the stop is told so; any other is served.
      if (shim.child.exitCode === null && !shim.stderr.includes('the broker leaves')) shim.send('again');
      await eventually('served or told', () => shim.stdout.includes('again') || shim.stderr.includes('the broker leaves'));
    }
    const ends = (await box.cli(['ls', '--all'])).stdout.match(/requested/g) ?? [];
    expect(ends.length).toBeGreaterThanOrEqual(5);
  });

  it('stop leaves a broker that does not answer alone; --force ends it and what it ran', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000', CWD_BROKER_HELLO_MS: '300' });
    const shim = box.connect(['node', box.fixture('tree.mjs'), 'never']);
    await shim.says('\n');
    const helper = Number(/pids (\d+)/.exec(shim.stdout)?.[1]);
    const pid = (await box.servingRecord()).broker?.pid as number;
    process.kill(pid, 'SIGSTOP');
    expect(await box.cli(['stop'])).toMatchObject({ code: 1 });
    expect(isAlive(pid)).toBe(true);
    expect((await box.cli(['stop', '--force'])).code).toBe(0);
    expect([isAlive(pid), isAlive(helper)]).toEqual([false, false]);
  });

  it('SIGTERM, SIGINT and SIGHUP are an ordered end', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000' });
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
      const shim = await used(box);
      const record = await box.servingRecord();
      process.kill(record.broker?.pid as number, signal);
      expect((await shim.exit).code).toBe(1);
      await eventually('a tombstone', async () => (await box.record())?.phase === 'stopped');
      expect((await box.record())?.end).toMatchObject({ by: 'broker', reason: 'signal', detail: signal });
      await box.isClean();
    }
  });
});

describe('check', () => {
  it('says busy for a directory with clients and for everything above it, free otherwise', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000' });
    const shim = box.connect(['cat'], { flags: ['--name', 'my-editor'] });
    await shim.echoes('hello');
    const env = { CLAUDE_PID: '' };
    for (const path of [box.work, box.dir, '.']) {
      const busy = await box.cli(['check', path], { env });
      expect(busy).toMatchObject({ code: 1, stdout: '' });
      expect(busy.stderr).toContain(`my-editor (pid ${shim.pid}`);
    }
    expect(await box.cli(['check', `${box.work}-sibling`])).toMatchObject({ code: 0, stderr: '' });
    // Clients below the host session that asks are its own.
    expect(await box.cli(['check', box.work], { env: { CLAUDE_PID: String(process.pid) } })).toMatchObject({
      code: 0,
      stderr: '',
    });
    shim.end();
    await shim.exit;
    expect(await box.cli(['check', box.work])).toEqual({ code: 0, stdout: '', stderr: '' });
  });
});

describe('wrong usage', () => {
  it('is exit code 2, names the mistake, and changes nothing', async () => {
    const box = await createSandbox();
    const calls = [
      [],
      ['nonsense'],
      ['ls', '--nonsense'],
      ['ls', 'extra'],
      ['check'],
      ['connect'],
      ['connect', '--nonsense', '--', 'cat'],
      ['logs', '-n', 'x'],
      ['stop', '--all', '.'],
      ['hook'],
    ];
    for (const args of calls) {
      const ran = await box.cli(args);
      expect(ran, args.join(' ')).toMatchObject({ code: 2, stdout: '' });
      expect(ran.stderr.length, args.join(' ')).toBeGreaterThan(10);
    }
    expect((await box.cli(['connect', '--', 'cat'], { env: { CWD_BROKER_MAX_CHILDREN: '0' } })).code).toBe(2);
    expect(box.processes()).toEqual([]);
    expect(await box.record()).toBeUndefined();
  });

  it('help and version are exit code 0', async () => {
    const box = await createSandbox();
    for (const args of [['--help'], ['help', 'ls'], ['ls', '--help'], ['connect', '--help'], ['--version']]) {
      expect(await box.cli(args), args.join(' ')).toMatchObject({ code: 0, stderr: '' });
    }
    for (const name of ['connect', 'ls', 'status', 'logs', 'stop', 'reap', 'check', 'doctor', 'hook']) {
      expect((await box.cli([name, '--help'])).stdout).toContain('Examples:');
    }
  });
});
