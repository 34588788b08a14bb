import { readFileSync, readlinkSync } from 'node:fs';
import { symlink } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { isAlive } from '../support/processes.ts';
import { createSandbox } from '../support/sandbox.ts';

describe('the main job', () => {
  it('gives two clients of one directory one broker and an upstream each', async () => {
    const box = await createSandbox();
    const [one, two] = [box.connect(['cat']), box.connect(['cat'])];
    await Promise.all([one.echoes('from one'), two.echoes('from two')]);
    const [entry, ...others] = JSON.parse((await box.cli(['ls', '--json'])).stdout);
    expect(others).toEqual([]);
    expect(entry).toMatchObject({ cwd: box.work, verdict: 'live', phase: 'serving', clients: 2, sessions: [], services: [] });
    expect(entry.upstreams.map((upstream: { command: string[] }) => upstream.command)).toEqual([['cat'], ['cat']]);
    expect(one.stdout).toBe('from one\n');
    expect(two.stdout).toBe('from two\n');
  });

  it('passes every byte both ways untouched, Content-Length framing and binary included', async () => {
    const box = await createSandbox();
    const shim = box.connect(['cat']);
    shim.child.stdout?.removeAllListeners('data').setEncoding('latin1');
    let back = '';
    shim.child.stdout?.on('data', (text: string) => {
      back += text;
    });
    const bytes = Buffer.alloc(3 << 20, 'Content-Length: 5\r\n\r\n\u0000\u00ff{"a":1}\n', 'latin1');
    shim.child.stdin?.end(bytes);
    expect(await shim.exit).toEqual({ code: 0, signal: null });
    expect(back === bytes.toString('latin1')).toBe(true);
  });

  it('relays what the server still says after the end of stdin, as a pipeline would', async () => {
    const box = await createSandbox();
    const ran = await box.cli(['connect', '--', 'sh', '-c', 'cat; sleep 0.3; echo late; exit 5'], { input: 'early\n' });
    expect(ran).toEqual({ code: 5, stdout: 'early\nlate\n', stderr: '' });
  });

  it('returns from a command substitution at once: the broker holds nothing of its starter', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '20000' });
    const ran = await box.cli(['connect', '--', 'sh', '-c', 'echo $SECRET'], {
      env: { SECRET: 'hush', NODE_OPTIONS: '--no-warnings' },
    });
    expect(ran.stdout).toBe('hush\n');
    const { broker } = await box.servingRecord();
    const found = box.processes().find(({ pid }) => pid === broker?.pid);
    expect(found?.command).toContain('brokerd.js');

    const environment = readFileSync(`/proc/${broker?.pid}/environ`, 'utf8');
    expect(environment).not.toMatch(/SECRET|NODE_OPTIONS|CWD_BROKER_INSTANCE/);
    expect(readlinkSync(`/proc/${broker?.pid}/cwd`)).toBe('/');
    const links = [0, 1, 2].map((fd) => readlinkSync(`/proc/${broker?.pid}/fd/${fd}`));
    const log = expect.stringMatching(/\/logs\/work-[0-9a-f]{12}\.log$/);
    expect(links).toEqual(['/dev/null', log, log]);
  });

  it('serves a subdirectory, a symlink to it and its canonical spelling by one broker', async () => {
    const box = await createSandbox();
    await symlink(box.work, `${box.dir}/alias`);
    const shims = [
      box.connect(['cat']),
      box.connect(['cat'], { cwd: `${box.dir}/alias` }),
      box.connect(['cat'], { cwd: '/', flags: ['--cwd', box.work] }),
    ];
    await Promise.all(shims.map((shim, index) => shim.echoes(`hello ${index}`)));
    expect(JSON.parse((await box.cli(['ls', '--json'])).stdout)).toHaveLength(1);
  });

  it('ends its shim at once on a signal, and the upstream with it', async () => {
    const box = await createSandbox();
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      const shim = box.connect(['node', box.fixture('tree.mjs'), 'eof']);
      await shim.says('pids ');
      const pid = Number(/pids (\d+)/.exec(shim.stdout)?.[1]);
      shim.child.kill(signal);
      expect(await shim.exit).toEqual({ code: null, signal });
      await eventually('the upstream is gone', () => !isAlive(pid));
    }
  });

  it('does not let what its own upstream started keep it up', async () => {
    const box = await createSandbox();
    // The upstream's tool connects back to the same directory and leaves itself running in a session of its own.
    const nested = `setsid ${process.execPath} ${box.brokerScript} connect -- cat < /dev/zero > /dev/null 2>&1 & echo started; exec cat`;
    const shim = box.connect(['sh', '-c', nested]);
    await shim.says('started');
    await eventually('the nested client is attached', async () => {
      const [entry] = JSON.parse((await box.cli(['ls', '--json'])).stdout);
      return entry?.clients === 2;
    });
    const record = await box.servingRecord();
    shim.end();
    await shim.exit;
    await eventually('the broker left', () => !isAlive(record.broker?.pid ?? 0));
  });
});
