import { mkdir, readdir, readFile, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { BrokerRecord } from '../../src/registry/record.ts';
import {
  createRecord,
  lastTouched,
  listGenerations,
  listKeys,
  readGeneration,
  readHighest,
  removeFolder,
  removeLowerRecord,
  removeSocket,
  touchRecord,
  updateRecord,
} from '../../src/registry/records.ts';
import { sampleRecord } from '../support/sample-record.ts';
import { createTempDir } from '../support/temp-dir.ts';

const instanceOf = (number: number): string => `instance${String(number).padStart(8, '0')}`;

/** A folder with one record for each generation, each of an instance of its own. */
async function createFolder(...generations: number[]): Promise<string> {
  const folder = await createTempDir();
  for (const generation of generations) await createRecord(folder, recordOf(generation));
  return folder;
}

function recordOf(generation: number, changes: Partial<BrokerRecord> = {}): BrokerRecord {
  return sampleRecord({ generation, instance: instanceOf(generation), ...changes });
}

describe('createRecord', () => {
  it('lets exactly one of fifty concurrent starters have each generation', async () => {
    const folder = await createTempDir();
    for (const generation of [1, 2, 3]) {
      const starters = Array.from({ length: 50 }, (_, at) =>
        recordOf(generation, { instance: instanceOf(generation * 100 + at) }),
      );
      const outcomes = await Promise.all(starters.map((record) => createRecord(folder, record)));
      const winners = starters.filter((_, at) => outcomes[at]);
      expect(winners).toHaveLength(1);
      expect((await readHighest(folder))?.reading).toEqual({ kind: 'record', record: winners[0] });
    }
    expect((await readdir(folder)).sort()).toEqual(['1.json', '2.json', '3.json']);
  });

  it('does not take a generation that holds garbage', async () => {
    const folder = await createTempDir();
    await writeFile(join(folder, '1.json'), '');
    expect(await createRecord(folder, recordOf(1))).toBe(false);
    expect(await readFile(join(folder, '1.json'), 'utf8')).toBe('');
  });

  it('writes what only the owner may read', async () => {
    const folder = await createFolder(1);
    expect((await stat(join(folder, '1.json'))).mode & 0o777).toBe(0o600);
  });

  it('says which folder cannot be written, and what to do', async () => {
    const folder = join(await createTempDir(), 'missing');
    await expect(createRecord(folder, recordOf(1))).rejects.toMatchObject({
      code: 'STORE_FAILED',
      message: expect.stringContaining(folder),
      hint: expect.any(String),
    });
  });
});

describe('reading a folder', () => {
  it('finds the highest generation by number, not by name', async () => {
    const folder = await createFolder(2, 9, 10);
    expect(await listGenerations(folder)).toEqual([10, 9, 2]);
    expect((await readHighest(folder))?.generation).toBe(10);
  });

  it('takes only whole positive numbers for generations', async () => {
    const folder = await createFolder(3);
    for (const name of ['0.json', '04.json', '-5.json', '6.json.tmp', '.7.tmp', '1e9.json', 'x.json', '1234567890.json']) {
      await writeFile(join(folder, name), '{}');
    }
    expect(await listGenerations(folder)).toEqual([3]);
  });

  it('finds nothing where there is no folder, or a file in its place', async () => {
    const dir = await createTempDir();
    await writeFile(join(dir, 'file'), '');
    expect(await readHighest(join(dir, 'missing'))).toBeUndefined();
    expect(await listGenerations(join(dir, 'file'))).toEqual([]);
    expect(await readGeneration(dir, 1)).toBeUndefined();
  });

  it('gives authority to the highest generation although it cannot be read', async () => {
    const folder = await createFolder(1);
    await writeFile(join(folder, '2.json'), '{"schema": 1,');
    expect(await readHighest(folder)).toMatchObject({ generation: 2, reading: { kind: 'torn' } });
    await writeFile(join(folder, '3.json'), '{"schema": 99}');
    expect(await readHighest(folder)).toMatchObject({ generation: 3, reading: { kind: 'newer', schema: 99 } });
  });

  it('does not believe a record that names another generation', async () => {
    const folder = await createTempDir();
    await writeFile(join(folder, '5.json'), JSON.stringify(recordOf(4)));
    expect(await readGeneration(folder, 5)).toMatchObject({ reading: { kind: 'torn', why: 'names another generation' } });
  });

  it('lists the folders of the registry and nothing else', async () => {
    const dir = await createTempDir();
    await mkdir(join(dir, 'app-0123456789ab'));
    await writeFile(join(dir, 'stray.txt'), '');
    expect(await listKeys(dir)).toEqual(['app-0123456789ab']);
    expect(await listKeys(join(dir, 'missing'))).toEqual([]);
  });
});

describe('updateRecord', () => {
  it('replaces the record by its new version', async () => {
    const folder = await createFolder(1);
    await updateRecord(folder, recordOf(1, { phase: 'draining', drainingAt: 9 }));
    expect((await readHighest(folder))?.reading).toMatchObject({ record: { phase: 'draining', drainingAt: 9 } });
    expect(await readdir(folder)).toEqual(['1.json']);
  });

  it('refuses a file that names another run', async () => {
    const folder = await createFolder(1);
    const stranger = recordOf(1, { instance: instanceOf(99) });
    await expect(updateRecord(folder, stranger)).rejects.toMatchObject({ code: 'STORE_FAILED' });
    expect((await readHighest(folder))?.reading).toEqual({ kind: 'record', record: recordOf(1) });
  });

  it('leaves the old version whole when the new one cannot be written', async () => {
    const folder = join(await createTempDir(), 'missing');
    await expect(updateRecord(folder, recordOf(1))).rejects.toMatchObject({ code: 'STORE_FAILED' });
  });

  it('never shows a reader half a record', async () => {
    const folder = await createFolder(1);
    let isWriting = true;
    const writing = (async () => {
      for (let at = 0; at < 100; at += 1) await updateRecord(folder, recordOf(1, { token: 'x'.repeat(at * 100) }));
      isWriting = false;
    })();
    while (isWriting) expect((await readHighest(folder))?.reading.kind).toBe('record');
    await writing;
  });
});

describe('removeLowerRecord', () => {
  it('removes a lower generation of the named run', async () => {
    const folder = await createFolder(1, 2);
    await removeLowerRecord(folder, 1, instanceOf(1));
    expect(await listGenerations(folder)).toEqual([2]);
  });

  it('never removes the highest generation, nor one above it', async () => {
    const folder = await createFolder(1, 2);
    await removeLowerRecord(folder, 2, instanceOf(2));
    await removeLowerRecord(folder, 3, instanceOf(3));
    expect(await listGenerations(folder)).toEqual([2, 1]);
  });

  it('never removes what names another run, or cannot be read', async () => {
    const folder = await createFolder(2, 3);
    await writeFile(join(folder, '1.json'), 'torn');
    await removeLowerRecord(folder, 2, instanceOf(9));
    await removeLowerRecord(folder, 1, instanceOf(1));
    await removeLowerRecord(folder, 7, instanceOf(1));
    expect(await listGenerations(folder)).toEqual([3, 2, 1]);
  });
});

describe('removeSocket', () => {
  it('removes a socket, and is content when it is gone', async () => {
    const path = join(await createTempDir(), 's.sock');
    const server = createServer().listen(path);
    await new Promise((resolve) => server.once('listening', resolve));
    await removeSocket(path);
    await removeSocket(path);
    await expect(stat(path)).rejects.toThrow('ENOENT');
    await new Promise((resolve) => server.close(resolve));
  });

  it('refuses a file and a link', async () => {
    const dir = await createTempDir();
    await writeFile(join(dir, 'file'), 'precious');
    await symlink(join(dir, 'file'), join(dir, 'link'));
    await removeSocket(join(dir, 'file'));
    await removeSocket(join(dir, 'link'));
    expect((await readdir(dir)).sort()).toEqual(['file', 'link']);
  });
});

describe('a folder', () => {
  const KEY = 'app-0123456789ab';

  async function createRegistry(...generations: number[]): Promise<{ folder: string; logsDir: string }> {
    const dir = await createTempDir();
    const folder = join(dir, KEY);
    const logsDir = join(dir, 'logs');
    await mkdir(folder);
    await mkdir(logsDir);
    for (const name of [`${KEY}.log`, `${KEY}.log.1`, 'other.log']) await writeFile(join(logsDir, name), '');
    for (const generation of generations) await createRecord(folder, recordOf(generation));
    return { folder, logsDir };
  }

  it('goes with its logs and nothing else', async () => {
    const { folder, logsDir } = await createRegistry(1, 2);
    await removeFolder(folder, 2, instanceOf(2), logsDir, KEY);
    await expect(stat(folder)).rejects.toThrow('ENOENT');
    expect(await readdir(logsDir)).toEqual(['other.log']);
  });

  it('stays when a newer run came, or the run is another', async () => {
    const { folder, logsDir } = await createRegistry(1, 2);
    await removeFolder(folder, 1, instanceOf(1), logsDir, KEY);
    await removeFolder(folder, 2, instanceOf(9), logsDir, KEY);
    expect(await listGenerations(folder)).toEqual([2, 1]);
    expect(await readdir(logsDir)).toHaveLength(3);
  });

  it('says when anything in it was last touched', async () => {
    const { folder } = await createRegistry(1);
    const old = new Date('2020-01-01T00:00:00Z');
    await utimes(join(folder, '1.json'), old, old);
    await utimes(folder, old, old);
    expect(await lastTouched(folder)).toBe(old.getTime());
    await touchRecord(folder, 1);
    expect(await lastTouched(folder)).toBeGreaterThan(old.getTime());
  });
});
