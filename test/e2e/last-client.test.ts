import { spawn } from 'node:child_process';
import { connect as dialSocket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { isAlive } from '../support/processes.ts';
import { createSandbox, type Sandbox, type Shim } from '../support/sandbox.ts';

const GRACE_MS = 500;

/** Beyond the grace, how long each kind of server may take; scaled generously for a busy machine only where a test says so. */
const LADDER_MS = { eof: 3_000, term: 6_000, never: 8_000 } as const;
type Mode = keyof typeof LADDER_MS;

const MODES = Object.keys(LADDER_MS) as Mode[];

/** How a client may vanish. Each gives back once it is gone. */
const ENDINGS: Record<string, (shim: Shim) => void> = {
  'a clean end': (shim) => shim.end(),
  SIGKILL: (shim) => shim.child.kill('SIGKILL'),
  'a closed terminal': (shim) => shim.child.kill('SIGHUP'),
};

async function pidsOf(shim: Shim): Promise<number[]> {
  await shim.says('pids ');
  const line = await eventually('the whole line', () => /pids ([\d ]+)\n/.exec(shim.stdout)?.[1]);
  return line.split(' ').map(Number);
}

/** Measures from the loss of the last client to the moment nothing is left. */
async function measureEnd(box: Sandbox, pids: readonly number[], endedAt: number): Promise<number> {
  await eventually(
    `broker, upstream and descendants are gone (${pids})`,
    async () => {
      const left = box.processes();
      if (left.length > 0) throw new Error(left.map(({ command }) => command).join('; '));
      return pids.every((pid) => !isAlive(pid));
    },
    30_000,
  );
  const tookMs = performance.now() - endedAt;
  expect(await box.runtimeFiles()).toEqual([]);
  expect((await box.record())?.end).toMatchObject({ by: 'broker', reason: 'idle' });
  return tookMs;
}

async function runOnce(mode: Mode, ending: (shim: Shim) => void): Promise<number> {
  const box = await createSandbox({ CWD_BROKER_GRACE_MS: String(GRACE_MS) });
  const shim = box.connect(['node', box.fixture('tree.mjs'), mode, 'child', 'escape']);
  const pids = await pidsOf(shim);
  expect(pids).toHaveLength(3);
  const endedAt = performance.now();
  ending(shim);
  return measureEnd(box, pids, endedAt);
}

describe('the last client leaves', () => {
  for (const mode of MODES) {
    for (const [name, ending] of Object.entries(ENDINGS)) {
      it(`${name}, server that ends by "${mode}": everything is gone in time, 4 of 4`, async () => {
        const took = await Promise.all(Array.from({ length: 4 }, () => runOnce(mode, ending)));
        // The fixture's children ignore the end of stdin, so a server of mode "eof" leaves them to SIGTERM.
        const limit = GRACE_MS + (mode === 'eof' ? LADDER_MS.term : LADDER_MS[mode]);
        expect(Math.max(...took), `took ${took.map(Math.round)} ms`).toBeLessThan(limit);
      });
    }
  }

  it('a server that ends on end of stdin and has no children is gone within grace + 3 s, 7 of 7', async () => {
    const took = await Promise.all(
      Array.from({ length: 7 }, async () => {
        const box = await createSandbox({ CWD_BROKER_GRACE_MS: String(GRACE_MS) });
        const shim = box.connect(['node', box.fixture('tree.mjs'), 'eof']);
        const pids = await pidsOf(shim);
        const endedAt = performance.now();
        shim.child.kill('SIGKILL');
        return measureEnd(box, pids, endedAt);
      }),
    );
    expect(Math.max(...took), `took ${took.map(Math.round)} ms`).toBeLessThan(GRACE_MS + LADDER_MS.eof);
  });

  for (const mode of MODES) {
    it(`a half-closed socket counts as gone, server that ends by "${mode}", 3 of 3`, async () => {
      const took = await Promise.all(
        Array.from({ length: 3 }, async () => {
          const box = await createSandbox({ CWD_BROKER_GRACE_MS: String(GRACE_MS) });
          await box.cli(['connect', '--', 'true']);
          const { pids, halfClose, closed } = await attachByHand(box, mode);
          const endedAt = performance.now();
          halfClose();
          const tookMs = await measureEnd(box, pids, endedAt);
          await closed;
          return tookMs;
        }),
      );
      expect(Math.max(...took), `took ${took.map(Math.round)} ms`).toBeLessThan(GRACE_MS + LADDER_MS[mode]);
    });
  }

  it('a terminal that is closed takes its shim along, and the broker ends', async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: String(GRACE_MS) });
    // `script` gives the shim a real terminal; ending it hangs that terminal up.
    const command = `${process.execPath} ${box.brokerScript} connect -- node ${box.fixture('tree.mjs')} eof`;
    const terminal = spawn('script', ['-qfc', command, '/dev/null'], {
      cwd: box.work,
      env: box.env,
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    let shown = '';
    terminal.stdout.on('data', (chunk) => {
      shown += chunk;
    });
    const line = await eventually('the server runs in the terminal', () => /pids (\d+)/.exec(shown)?.[1], 20_000);
    const endedAt = performance.now();
    terminal.kill('SIGKILL');
    expect(await measureEnd(box, [Number(line)], endedAt)).toBeLessThan(GRACE_MS + LADDER_MS.eof);
  });
});

/** A client without our library: speaks the wire protocol and then closes only its own half. */
async function attachByHand(box: Sandbox, mode: Mode) {
  const record = await box.servingRecord();
  const socket = dialSocket({ path: record.socket, allowHalfOpen: true });
  socket.on('error', () => undefined);
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk;
  });
  const send = (id: number, method: string, params: unknown): void =>
    void socket.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
  send(1, 'broker/hello', { protocol: 1, token: record.token, client: { name: 'by hand', version: '0', pid: process.pid } });
  send(2, 'broker/attach', { command: 'node', args: [box.fixture('tree.mjs'), mode], env: box.env });
  const line = await eventually('the server answers', () => /pids ([\d ]+)\n/.exec(text)?.[1]);
  const halfClose = (): void => {
    socket.end();
    socket.resume();
  };
  return { pids: line.split(' ').map(Number), halfClose, closed };
}
