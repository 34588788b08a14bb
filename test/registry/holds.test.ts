import { readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ownIdentity } from '../../src/process/identity.ts';
import { giveBackHold, type Hold, isHoldAlive, listHolds, takeHold } from '../../src/registry/holds.ts';
import { createTempDir } from '../support/temp-dir.ts';

const holdOf = (sessionId: string, changes: Partial<Hold> = {}): Hold => ({
  sessionId,
  key: 'app-0123456789ab',
  cwd: '/home/me/app',
  identity: ownIdentity(),
  takenAt: 1_000,
  ...changes,
});

const createHoldsDir = async (): Promise<string> => join(await createTempDir(), 'holds');

describe('a hold', () => {
  it('is taken, listed and given back', async () => {
    const dir = await createHoldsDir();
    await takeHold(dir, holdOf('session-1'));
    await takeHold(dir, holdOf('session-2'));
    expect((await listHolds(dir)).map((hold) => hold.sessionId).sort()).toEqual(['session-1', 'session-2']);
    expect(await giveBackHold(dir, 'session-1')).toEqual(holdOf('session-1'));
    expect(await listHolds(dir)).toEqual([holdOf('session-2')]);
  });

  it('that is taken again replaces the one before', async () => {
    const dir = await createHoldsDir();
    await takeHold(dir, holdOf('session-1'));
    await takeHold(dir, holdOf('session-1', { takenAt: 2_000 }));
    expect(await listHolds(dir)).toEqual([holdOf('session-1', { takenAt: 2_000 })]);
  });

  it('is for the owner alone', async () => {
    const dir = await createHoldsDir();
    await takeHold(dir, holdOf('session-1'));
    expect((await stat(dir)).mode & 0o777).toBe(0o700);
    expect((await stat(join(dir, 'session-1.json'))).mode & 0o777).toBe(0o600);
  });

  it('that was never taken gives nothing back', async () => {
    expect(await giveBackHold(await createHoldsDir(), 'session-1')).toBeUndefined();
  });

  it.each(['../escape', 'a/b', '', 'a.b', 'x'.repeat(65)])('is refused for the id %j', async (sessionId) => {
    const dir = await createHoldsDir();
    await expect(takeHold(dir, holdOf(sessionId))).rejects.toMatchObject({ code: 'INVALID_PARAMS' });
    await expect(giveBackHold(dir, sessionId)).rejects.toMatchObject({ code: 'INVALID_PARAMS' });
  });

  it('that cannot be read is skipped, and goes when it is given back', async () => {
    const dir = await createHoldsDir();
    await takeHold(dir, holdOf('good'));
    await writeFile(join(dir, 'torn.json'), '{"sessionId": "torn"');
    await writeFile(join(dir, 'empty.json'), '');
    await writeFile(join(dir, 'null.json'), 'null');
    await writeFile(join(dir, 'list.json'), '[]');
    await writeFile(join(dir, 'bare.json'), '{"sessionId": "bare", "key": "k"}');
    await writeFile(join(dir, 'other.json'), JSON.stringify(holdOf('good')));
    expect(await listHolds(dir)).toEqual([holdOf('good')]);
    expect(await giveBackHold(dir, 'torn')).toBeUndefined();
    expect(await readdir(dir)).not.toContain('torn.json');
  });

  it('is missing where there is no folder', async () => {
    expect(await listHolds(await createHoldsDir())).toEqual([]);
  });
});

describe('isHoldAlive', () => {
  it.each([
    ['a living session', {}, true],
    ['a session of an earlier boot', { bootId: 'before' }, false],
    ['a pid that was reused', { startTime: '1' }, false],
    ['a pid that is gone', { pid: 2 ** 22 + 1 }, false],
    ['a session in another pid namespace', { pidNamespace: 'pid:[1]' }, true],
  ])('says of %s: %s', (_, changes, expected) => {
    expect(isHoldAlive(holdOf('session-1', { identity: { ...ownIdentity(), ...changes } }))).toBe(expected);
  });
});
