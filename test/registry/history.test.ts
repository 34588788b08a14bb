import { appendFile, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FIXED } from '../../src/config.ts';
import { appendHistory, type HistoryEntry, readHistory } from '../../src/registry/history.ts';
import { createTempDir } from '../support/temp-dir.ts';

const entryOf = (generation: number): HistoryEntry => ({
  cwd: '/home/me/app',
  instance: '0123456789abcdef',
  generation,
  startedAt: 1,
  end: { by: 'broker', reason: 'idle', at: 2 },
});

const createFile = async (): Promise<string> => join(await createTempDir(), 'history.jsonl');

describe('the history', () => {
  it('is empty before anything ended', async () => {
    expect(await readHistory(await createFile())).toEqual([]);
  });

  it('keeps entries in the order they came, for the owner alone', async () => {
    const file = await createFile();
    for (const generation of [1, 2, 3]) await appendHistory(file, entryOf(generation));
    expect(await readHistory(file)).toEqual([1, 2, 3].map(entryOf));
    expect((await stat(file)).mode & 0o777).toBe(0o600);
  });

  it('skips lines that are no entries', async () => {
    const file = await createFile();
    await appendHistory(file, entryOf(1));
    await appendFile(file, '\n{"cwd": "/half\nnull\n[]\n{"cwd": "/no-end"}\nplain text\n');
    await appendHistory(file, entryOf(2));
    expect(await readHistory(file)).toEqual([1, 2].map(entryOf));
  });

  it('gives the last entries only', async () => {
    const file = await createFile();
    const all = Array.from({ length: FIXED.historyEntries + 20 }, (_, at) => entryOf(at + 1));
    await writeFile(file, all.map((one) => `${JSON.stringify(one)}\n`).join(''));
    expect(await readHistory(file)).toEqual(all.slice(20));
  });

  it('is cut to the last entries when the file has grown, and leaves nothing beside it', async () => {
    const dir = await createTempDir();
    const file = join(dir, 'history.jsonl');
    const line = `${JSON.stringify(entryOf(1))}\n`;
    await writeFile(file, line.repeat(Math.ceil((FIXED.historyEntries * 600) / line.length)));
    await appendHistory(file, entryOf(2));
    const lines = (await readFile(file, 'utf8')).trimEnd().split('\n');
    expect(lines).toHaveLength(FIXED.historyEntries);
    expect(JSON.parse(lines.at(-1) ?? '')).toEqual(entryOf(2));
    expect(await readdir(dir)).toEqual(['history.jsonl']);
  });

  it('loses nothing when many brokers end at once', async () => {
    const file = await createFile();
    await Promise.all(Array.from({ length: 40 }, (_, at) => appendHistory(file, entryOf(at + 1))));
    expect((await readHistory(file)).map(({ generation }) => generation).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 40 }, (_, at) => at + 1),
    );
  });
});
