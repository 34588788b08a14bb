import { mkdir, readdir, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openLogFile } from '../../src/registry/log-file.ts';
import { createTempDir } from '../support/temp-dir.ts';

function open(file: string, maxBytes: number): ReturnType<typeof openLogFile> {
  const log = openLogFile(file, maxBytes);
  onTestFinished(() => log.close());
  return log;
}

describe('a log file', () => {
  it('grows by whole lines, for the owner alone', async () => {
    const file = join(await createTempDir(), 'app.log');
    const log = open(file, 1_000);
    log.write('one\n');
    log.write('two\n');
    expect(await readFile(file, 'utf8')).toBe('one\ntwo\n');
    expect((await stat(file)).mode & 0o777).toBe(0o600);
  });

  it('is rotated before it grows over its limit, counted in bytes', async () => {
    const dir = await createTempDir();
    const file = join(dir, 'app.log');
    const log = open(file, 10);
    log.write('ééé\n');
    log.write('xy\n');
    expect(await readdir(dir)).toEqual(['app.log']);
    log.write('z\n');
    expect(await readFile(file, 'utf8')).toBe('z\n');
    expect(await readFile(`${file}.1`, 'utf8')).toBe('ééé\nxy\n');
  });

  it('keeps two files, however much is written', async () => {
    const dir = await createTempDir();
    const file = join(dir, 'app.log');
    const log = open(file, 100);
    for (let at = 0; at < 500; at += 1) log.write(`line ${at}\n`);
    expect((await readdir(dir)).sort()).toEqual(['app.log', 'app.log.1']);
    expect((await stat(file)).size).toBeLessThanOrEqual(100);
    expect((await stat(`${file}.1`)).size).toBeLessThanOrEqual(100);
    expect(await readFile(file, 'utf8')).toContain('line 499\n');
  });

  it('counts what an earlier run has left in it', async () => {
    const file = join(await createTempDir(), 'app.log');
    open(file, 10).write('12345678\n');
    open(file, 10).write('next\n');
    expect(await readFile(file, 'utf8')).toBe('next\n');
  });

  it('takes a line that is longer than its limit', async () => {
    const file = join(await createTempDir(), 'app.log');
    const log = open(file, 10);
    log.write(`${'x'.repeat(50)}\n`);
    expect((await readFile(file, 'utf8')).length).toBe(51);
  });

  it('goes on when somebody removes it', async () => {
    const file = join(await createTempDir(), 'app.log');
    const log = open(file, 10);
    log.write('12345678\n');
    await rm(file);
    log.write('after\n');
    log.write('again\n');
    expect(await readFile(file, 'utf8')).toContain('again\n');
  });

  it('that cannot be opened costs its lines and nothing else', async () => {
    const dir = await createTempDir();
    await mkdir(join(dir, 'app.log'));
    const log = open(join(dir, 'app.log'), 10);
    expect(() => log.write('x\n')).not.toThrow();
    expect(() => open(join(dir, 'missing', 'app.log'), 10).write('x\n')).not.toThrow();
  });

  it('takes nothing more once it is closed, not even what would rotate it', async () => {
    const dir = await createTempDir();
    const file = join(dir, 'app.log');
    const log = open(file, 10);
    log.write('12345678\n');
    log.close();
    log.close();
    log.write('late\n');
    expect(await readdir(dir)).toEqual(['app.log']);
    expect(await readFile(file, 'utf8')).toBe('12345678\n');
  });
});
