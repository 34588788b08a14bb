import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { brokerKey, stateLayout } from '../../src/registry/paths.ts';
import { readHighest } from '../../src/registry/records.ts';
import { eventually } from '../support/eventually.ts';
import { isAlive } from '../support/processes.ts';
import { createSandbox, type Sandbox, type Shim } from '../support/sandbox.ts';

const CLIENTS = 20;
const ROUNDS = 10;

/** What twenty clients may find. Each prepares a fresh directory and says what has to be tidied. */
const FINDS: Record<string, (box: Sandbox, root: string) => Promise<void>> = {
  'nothing there': async () => undefined,
  'a stale socket': async (box, root) => {
    const record = await killedOwner(box, root);
    // The socket file outlives its owner; make sure it is there, refusing everyone.
    await leaveSocketFile(record.socket);
  },
  'a dead record': async (box, root) => {
    await killedOwner(box, root);
  },
  'a torn record': async (box, root) => {
    const folder = stateLayout(box.stateDir).folder(brokerKey(root));
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, '1.json'), '{"schema":1,"generation":1,"inst');
  },
  'an owner just killed': async (box, root) => {
    const shim = box.connect(['cat'], { cwd: root });
    await shim.echoes('owner');
    const record = await box.servingRecord(root);
    process.kill(record.broker?.pid as number, 'SIGKILL');
    shim.child.kill('SIGKILL');
  },
};

async function killedOwner(box: Sandbox, root: string) {
  await box.cli(['connect', '--', 'true'], { cwd: root });
  const record = await box.servingRecord(root);
  process.kill(record.broker?.pid as number, 'SIGKILL');
  await eventually('the owner is dead', () => !isAlive(record.broker?.pid as number));
  return record;
}

async function leaveSocketFile(path: string): Promise<void> {
  await rm(path, { force: true });
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(`${path}.x`, resolve));
  await rename(`${path}.x`, path);
  await new Promise((resolve) => server.close(resolve));
}

/** Twenty clients at once; all are answered, by one and the same broker. */
async function stampede(box: Sandbox, root: string): Promise<void> {
  const shims: Shim[] = Array.from({ length: CLIENTS }, () => box.connect(['cat'], { cwd: root }));
  await Promise.all(shims.map((shim, index) => shim.echoes(`client ${index}`)));
  const brokers = box.processes().filter(({ command }) => command.includes('brokerd.js') && command.includes(root));
  expect(brokers.map(({ pid }) => pid)).toHaveLength(1);
  const [entry] = JSON.parse((await box.cli(['ls', '--json'])).stdout).filter((one: { cwd: string }) => one.cwd === root);
  expect(entry).toMatchObject({ pid: brokers[0]?.pid, clients: CLIENTS, verdict: 'live' });
  expect(shims.map(({ stderr }) => stderr).join('')).toBe('');
  for (const shim of shims) shim.child.kill('SIGKILL');
  await Promise.all(shims.map((shim) => shim.exit));
}

describe('exactly one broker', () => {
  for (const [what, prepare] of Object.entries(FINDS)) {
    it(`${CLIENTS} simultaneous first uses find ${what}: one broker, all served, ${ROUNDS} of ${ROUNDS}`, async () => {
      const box = await createSandbox({ CWD_BROKER_GRACE_MS: '2000' });
      for (let round = 0; round < ROUNDS; round += 1) {
        const root = join(box.dir, `round-${round}`);
        await mkdir(root);
        await prepare(box, root);
        await stampede(box, root);
        expect((await readHighest(stateLayout(box.stateDir).folder(brokerKey(root))))?.reading.kind).toBe('record');
      }
    });
  }
});
