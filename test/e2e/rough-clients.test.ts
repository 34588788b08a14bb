import { readdirSync, readlinkSync } from 'node:fs';
import { mkdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { execa } from 'execa';
import { describe, expect, it } from 'vitest';
import { brokerKey, stateLayout } from '../../src/registry/paths.ts';
import { eventually } from '../support/eventually.ts';
import { isAlive } from '../support/processes.ts';
import { createSandbox, type Sandbox } from '../support/sandbox.ts';
import { WireClient } from '../support/wire-client.ts';

async function startedBroker(env: Record<string, string> = {}) {
  const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000', ...env });
  await box.cli(['connect', '--', 'true']);
  return { box, record: await box.servingRecord() };
}

async function statusOf(box: Sandbox) {
  return JSON.parse((await box.cli(['status', '--json'])).stdout);
}

describe('a client that is gone while its helper starts', () => {
  it('leaves no helper behind, 20 of 20', async () => {
    const { box, record } = await startedBroker();
    for (let round = 0; round < 20; round += 1) {
      const client = new WireClient(record);
      client.hello(record);
      client.send('broker/attach', { command: 'sleep', args: ['600'], env: box.env });
      await sleep(round % 10);
      client.socket.destroy();
    }
    await eventually('no helper is left', async () => (await statusOf(box)).upstreams.length === 0);
    expect(await statusOf(box)).toMatchObject({ clients: 0, pid: record.broker?.pid });
    expect(box.processes().filter(({ command }) => command.includes('sleep 600'))).toEqual([]);
  });
});

describe('what a client may say wrongly', () => {
  it('gets an answer, and nobody else notices', async () => {
    const { box, record } = await startedBroker();
    const shim = box.connect(['cat']);
    await shim.echoes('before');
    const hellos = [
      { cwd: null },
      { cwd: 'x' },
      { cwd: { dev: 1 } },
      { marker: 7 },
      { client: null },
      { token: 'wrong' },
      { protocol: 99 },
      { protocol: null },
    ];
    for (const more of hellos) {
      const client = new WireClient(record);
      expect((await client.answer(client.hello(record, more))).error, JSON.stringify(more)).toBeDefined();
      client.socket.destroy();
    }
    const attaches = [
      null,
      {},
      { command: '' },
      { command: 'cat' },
      { command: 'cat', args: [1], env: {} },
      { command: 'cat', args: [], env: { 'a=b': 'c' } },
      { command: 'a\0b', args: [], env: {} },
      { command: 'cat', args: [], env: {}, sharing: 'shared' },
    ];
    for (const params of attaches) {
      const client = new WireClient(record);
      client.hello(record);
      expect((await client.answer(client.send('broker/attach', params))).error?.data?.code, JSON.stringify(params)).toBe(
        'INVALID_PARAMS',
      );
      client.socket.destroy();
    }
    const early = new WireClient(record);
    expect((await early.answer(early.send('broker/attach', { command: 'cat', args: [], env: {} }))).error?.data?.code).toBe(
      'NOT_OWNER',
    );
    early.socket.write('\0\0garbage\n[]\n{"id":1}\nnull\n"x"\n\n{"jsonrpc":"2.0"}\n1\n{}\n{{{\n');
    await early.closed;
    await shim.echoes('after');
    expect(await box.servingRecord()).toMatchObject({ instance: record.instance });
  });

  it('bytes right behind the attach are the first the helper reads', async () => {
    const { box, record } = await startedBroker();
    const client = new WireClient(record);
    const attach = JSON.stringify({
      jsonrpc: '2.0',
      id: 2,
      method: 'broker/attach',
      params: { command: 'cat', args: [], env: box.env },
    });
    client.hello(record);
    client.socket.write(`${attach}\nfirst\nsecond`);
    await eventually('all of it comes back', () => client.text.endsWith('first\nsecond'));
    client.socket.destroy();
  });
});

describe('output', () => {
  it('reaches a client whole that does not read for seconds while its helper ends', async () => {
    const { box } = await startedBroker();
    const shim = box.connect(['sh', '-c', 'head -c 3000000 /dev/zero; exit 3']);
    shim.child.stdout?.removeAllListeners('data').pause();
    let bytes = 0;
    await sleep(2_500);
    shim.child.stdout?.on('data', (text: string) => {
      bytes += text.length;
    });
    shim.child.stdout?.resume();
    expect((await shim.exit).code).toBe(3);
    await eventually('every byte', () => bytes === 3_000_000);
  });
});

describe('the environment of a helper', () => {
  it('is the whole one of its client, odd names included', async () => {
    const { box } = await startedBroker();
    const odd = { 'npm_config_//registry.example/:_authToken': 'one', 'my.prop': 'two words', EMPTY: '' };
    const ran = await box.cli(['connect', '--', 'env', '-0'], { env: odd });
    expect(ran.stdout.split('\0')).toEqual(
      expect.arrayContaining(Object.entries(odd).map(([name, value]) => `${name}=${value}`)),
    );
  });
});

describe('the end of stdin', () => {
  it('is answered with what the server still says, and its exit code, also when that takes seconds', async () => {
    const { box } = await startedBroker();
    const ran = await box.cli(['connect', '--', 'sh', '-c', 'cat >/dev/null; sleep 2; echo result; exit 3'], { input: 'x' });
    expect(ran).toEqual({ code: 3, stdout: 'result\n', stderr: '' });
    const stubborn = await box.cli(['connect', '--', 'sh', '-c', 'cat >/dev/null; exec sleep 602'], { input: 'x' });
    expect(stubborn.code).toBe(143);
  });
});

describe('an idle exit', () => {
  it('waits for a client that has not read all of what its ended helper said', async () => {
    const { box } = await startedBroker({ CWD_BROKER_GRACE_MS: '100' });
    const shim = box.connect(['head', '-c', '450000', '/dev/zero']);
    shim.child.stdout?.removeAllListeners('data').pause();
    await sleep(3_000);
    let bytes = 0;
    shim.child.stdout?.on('data', (text: string) => {
      bytes += text.length;
    });
    shim.child.stdout?.resume();
    expect((await shim.exit).code).toBe(0);
    await eventually('every byte', () => bytes === 450_000);
  });
});

describe('what a helper leaves in its group', () => {
  it('ends with it, also without the marker in its environment', async () => {
    const { box } = await startedBroker();
    const shim = box.connect(['sh', '-c', 'env -i sleep 601 </dev/null >/dev/null 2>&1 & echo "pid $!"; exit 0']);
    expect((await shim.exit).code).toBe(0);
    const pid = Number(/pid (\d+)/.exec(shim.stdout)?.[1]);
    await eventually('the sleeper is gone', () => !isAlive(pid));
  });
});

describe('a broker', () => {
  it('holds no descriptor of its starter, high ones included', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: '60000' });
    const line = `exec 200>"${box.dir}/held"; exec "${process.execPath}" "${box.brokerScript}" connect -- true`;
    await execa('bash', ['-c', line], { cwd: box.work, env: box.env, extendEnv: false, stdin: 'ignore' });
    const { broker } = await box.servingRecord();
    // A descriptor may be closed between the listing and the look at it: then the whole look is repeated.
    const open = await eventually('a whole look', () =>
      readdirSync(`/proc/${broker?.pid}/fd`).map((fd) => readlinkSync(`/proc/${broker?.pid}/fd/${fd}`)),
    );
    expect(open.length).toBeGreaterThan(3);
    expect(open.filter((path) => path.includes('held'))).toEqual([]);
  });
});

describe('one bad entry in the registry', () => {
  it('is reported, and keeps nobody from the others', async () => {
    const { box, record } = await startedBroker();
    const folder = stateLayout(box.stateDir).folder(brokerKey('/some/where'));
    await mkdir(join(folder, '3.json'), { recursive: true });
    const entries = JSON.parse((await box.cli(['ls', '--json'])).stdout);
    expect(entries.map(({ verdict }: { verdict: string }) => verdict).sort()).toEqual(['live', 'unknown']);
    expect((await box.cli(['reap'])).code).toBe(0);
    expect((await box.cli(['check', box.work])).code).toBe(0);
    expect((await box.cli(['doctor'])).stdout).toContain('EISDIR');
    expect(await box.servingRecord()).toMatchObject({ instance: record.instance });
    await rmdir(join(folder, '3.json'));
    await rmdir(folder);
  });
});
