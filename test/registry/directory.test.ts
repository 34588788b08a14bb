import { mkdir, rename, rm, rmdir, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  type Confirmation,
  classifyProbe,
  confirm,
  type DirectoryIdentity,
  isAncestorReadable,
  isOnOverlay,
  type ProbeOutcome,
  probeDirectory,
  readDirectoryIdentity,
  sitsInDeleted,
} from '../../src/registry/directory.ts';
import { createTempDir } from '../support/temp-dir.ts';

const DEADLINE_MS = 2_000;
const RECORDED: DirectoryIdentity = { dev: '1', ino: '2', birthtimeNs: '3' };
const seen = (changes: Partial<DirectoryIdentity> = {}, isDirectory = true): ProbeOutcome => ({
  kind: 'stat',
  identity: { ...RECORDED, ...changes },
  isDirectory,
});
const failed = (errno: string): ProbeOutcome => ({ kind: 'error', errno });

describe('classifyProbe', () => {
  it.each([
    ['same', seen()],
    ['replaced', seen({ ino: '9' })],
    ['replaced', seen({ ino: '9', dev: '9', birthtimeNs: '9' })],
    ['replaced', seen({}, false)],
    ['unknown', seen({ dev: '9' })],
    ['ambiguous', seen({ birthtimeNs: '9' })],
    ['gone', failed('ENOENT')],
    ['gone', failed('ENOTDIR')],
    ...['EACCES', 'EPERM', 'EIO', 'ESTALE', 'ENOTCONN', 'ETIMEDOUT', 'ENOMEM', 'EDEADLINE', 'EUNKNOWN'].map(
      (errno) => ['unknown', failed(errno)] as const,
    ),
  ] as const)('says %s of %j', (expected, outcome) => {
    expect(classifyProbe(RECORDED, outcome)).toBe(expected);
  });

  it('takes another birth time for a replacement when something else saw it too', () => {
    expect(classifyProbe(RECORDED, seen({ birthtimeNs: '9' }), true)).toBe('replaced');
  });

  it('is not swayed by a witness while the directory is the same or cannot be seen', () => {
    expect(classifyProbe(RECORDED, seen(), true)).toBe('same');
    expect(classifyProbe(RECORDED, failed('EACCES'), true)).toBe('unknown');
  });
});

describe('confirm', () => {
  const rule = { times: 3, spanMs: 2_000 };
  const twice: Confirmation = { answer: 'gone', times: 2, sinceAt: 1_000 };

  it.each(['same', 'ambiguous', 'unknown'] as const)('starts over at %s', (answer) => {
    expect(confirm(twice, answer, 9_000, rule, true)).toEqual({ isGone: false, confirmation: undefined });
  });

  it('begins to count at the first answer', () => {
    expect(confirm(undefined, 'gone', 7, rule, true)).toEqual({
      isGone: false,
      confirmation: { answer: 'gone', times: 1, sinceAt: 7 },
    });
  });

  it('begins anew when the answer changes', () => {
    expect(confirm(twice, 'replaced', 7, rule, true)).toEqual({
      isGone: false,
      confirmation: { answer: 'replaced', times: 1, sinceAt: 7 },
    });
  });

  it('is sure after enough equal answers over a long enough time', () => {
    expect(confirm(twice, 'gone', 3_000, rule, true)).toEqual({ isGone: true });
  });

  it('is not sure when they came too fast, however many', () => {
    const many = { ...twice, times: 50 };
    expect(confirm(many, 'gone', 2_999, rule, true)).toEqual({ isGone: false, confirmation: { ...many, times: 51 } });
  });

  it('is not sure after too few, however long it took', () => {
    const once = { ...twice, times: 1 };
    expect(confirm(once, 'gone', 90_000, rule, true)).toEqual({ isGone: false, confirmation: { ...once, times: 2 } });
  });

  it('is not sure while the tree above cannot be read, and keeps counting', () => {
    expect(confirm(twice, 'gone', 9_000, rule, false)).toEqual({ isGone: false, confirmation: { ...twice, times: 3 } });
  });
});

describe('a real directory', () => {
  it('stays the same through changes inside it and of its times', async () => {
    const dir = await createTempDir();
    const identity = await readDirectoryIdentity(dir);
    await writeFile(join(dir, 'file'), 'x');
    await utimes(dir, new Date(0), new Date(0));
    expect(classifyProbe(identity, await probeDirectory(dir, 5_000))).toBe('same');
  });

  it('stays the same through a link to it', async () => {
    const dir = await createTempDir();
    const link = `${dir}-link`;
    await symlink(dir, link);
    expect(classifyProbe(await readDirectoryIdentity(dir), await probeDirectory(link, 5_000))).toBe('same');
  });

  it('is gone once it is removed, and once its parent is', async () => {
    const dir = join(await createTempDir(), 'parent', 'work');
    await mkdir(dir, { recursive: true });
    const identity = await readDirectoryIdentity(dir);
    await rmdir(dir);
    expect(classifyProbe(identity, await probeDirectory(dir, 5_000))).toBe('gone');
    await rm(join(dir, '..'), { recursive: true });
    await writeFile(join(dir, '..'), 'a file in place of the parent');
    expect(await probeDirectory(dir, 5_000)).toEqual({ kind: 'error', errno: 'ENOTDIR' });
  });

  it('is replaced when another directory or a file takes its name', async () => {
    const parent = await createTempDir();
    const dir = join(parent, 'work');
    await mkdir(dir);
    const identity = await readDirectoryIdentity(dir);
    await rename(dir, join(parent, 'moved'));
    await mkdir(dir);
    expect(classifyProbe(identity, await probeDirectory(dir, 5_000))).toBe('replaced');
    await rmdir(dir);
    await writeFile(dir, '');
    expect(classifyProbe(identity, await probeDirectory(dir, 5_000))).toBe('replaced');
  });
});

describe('probeDirectory', () => {
  it('takes an answer that does not come for an error', async () => {
    const outcome = await probeDirectory('/', 1, () => new Promise(() => undefined));
    expect(outcome).toEqual(failed('EDEADLINE'));
  });

  it('takes an error without a name for an unknown one', async () => {
    expect(await probeDirectory('/', 5_000, () => Promise.reject(new Error('odd')))).toEqual(failed('EUNKNOWN'));
  });
});

describe('isAncestorReadable', () => {
  it('looks for the nearest ancestor that is there', async () => {
    const dir = await createTempDir();
    expect(await isAncestorReadable(join(dir, 'gone', 'deeper', 'work'), DEADLINE_MS)).toBe(true);
  });

  it('says no when an ancestor cannot be read', async () => {
    const denied = Object.assign(new Error('denied'), { code: 'EACCES' });
    expect(await isAncestorReadable('/a/b/c', DEADLINE_MS, () => Promise.reject(denied))).toBe(false);
  });

  it('says no when not even the root is there', async () => {
    const missing = Object.assign(new Error('missing'), { code: 'ENOENT' });
    expect(await isAncestorReadable('/a/b/c', DEADLINE_MS, () => Promise.reject(missing))).toBe(false);
  });
});

describe('witnesses', () => {
  it('does not take this process for one in a deleted directory, nor one that is not there', () => {
    expect(sitsInDeleted(process.pid, process.cwd())).toBe(false);
    expect(sitsInDeleted(2 ** 22 + 1, '/')).toBe(false);
  });

  it('assumes an overlay where it cannot look', async () => {
    expect(await isOnOverlay(join(await createTempDir(), 'missing'), DEADLINE_MS)).toBe(true);
  });
});
