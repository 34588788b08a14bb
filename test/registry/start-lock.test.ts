import { mkdir, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { FIXED } from '../../src/config.ts';
import { ownIdentity } from '../../src/process/identity.ts';
import { withStartLock } from '../../src/registry/start-lock.ts';
import { createTempDir } from '../support/temp-dir.ts';

const KEY = 'app-0123456789ab';
const LOCK = '0123456789ab.lock';
const OWNER = '0123456789ab.owner';
/** Longer than any test may take: whoever waits this long is seen by the test's own deadline. */
const FOREVER_MS = 60_000;

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A lock as another process would hold it. */
async function holdByOther(dir: string, owner?: string): Promise<void> {
  await mkdir(join(dir, LOCK));
  if (owner !== undefined) await writeFile(join(dir, OWNER), owner);
}

/** How long it took until the body ran. */
async function measureWait(dir: string, waitMs: number): Promise<number> {
  const startedAt = performance.now();
  return withStartLock(dir, KEY, waitMs, async () => performance.now() - startedAt);
}

describe('withStartLock', () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  it('holds the lock and names its owner while the body runs, and leaves nothing behind', async () => {
    const dir = await createTempDir();
    const during = await withStartLock(dir, KEY, 1_000, async () => {
      const owner: unknown = JSON.parse(await readFile(join(dir, OWNER), 'utf8'));
      return { owner, names: (await readdir(dir)).sort() };
    });
    expect(during).toEqual({ owner: ownIdentity(), names: [LOCK, OWNER] });
    expect(await readdir(dir)).toEqual([]);
  });

  it('lets go when the body throws', async () => {
    const dir = await createTempDir();
    await expect(withStartLock(dir, KEY, 1_000, () => Promise.reject(new Error('body')))).rejects.toThrow('body');
    expect(await readdir(dir)).toEqual([]);
  });

  it('runs one body at a time while nobody waits too long', async () => {
    const dir = await createTempDir();
    let running = 0;
    let most = 0;
    const body = async (): Promise<void> => {
      running += 1;
      most = Math.max(most, running);
      for (let left = 5; left > 0; left -= 1) await turn();
      running -= 1;
    };
    await Promise.all(Array.from({ length: 10 }, () => withStartLock(dir, KEY, FOREVER_MS, body)));
    expect(most).toBe(1);
  });

  it('does not let two roots wait for each other', async () => {
    const dir = await createTempDir();
    const inner = withStartLock(dir, KEY, FOREVER_MS, () =>
      withStartLock(dir, 'app-ffffffffffff', FOREVER_MS, async () => 'both'),
    );
    expect(await inner).toBe('both');
  });

  it('waits no longer than told, then goes on without', async () => {
    const dir = await createTempDir();
    await holdByOther(dir);
    expect(await measureWait(dir, 80)).toBeGreaterThanOrEqual(80);
    expect(await readdir(dir)).toEqual([LOCK]);
  });

  it('waits for an owner that lives', async () => {
    const dir = await createTempDir();
    await holdByOther(dir, JSON.stringify(ownIdentity()));
    expect(await measureWait(dir, 80)).toBeGreaterThanOrEqual(80);
    expect((await readdir(dir)).sort()).toEqual([LOCK, OWNER]);
  });

  it.each([
    ['died', { pid: 2 ** 22 + 1 }],
    ['is another process now', { startTime: '1' }],
    ['was of an earlier boot', { bootId: 'before' }],
  ])('does not wait for an owner that %s', async (_, changes) => {
    const dir = await createTempDir();
    await holdByOther(dir, JSON.stringify({ ...ownIdentity(), ...changes }));
    expect(await measureWait(dir, FOREVER_MS)).toBeLessThan(FOREVER_MS / 2);
  });

  it.each(['', '{"pid": 47', 'null', '[]', '7'])('takes an owner file with %j for no evidence', async (text) => {
    const dir = await createTempDir();
    await holdByOther(dir, text);
    expect(await measureWait(dir, 80)).toBeGreaterThanOrEqual(80);
  });

  it('takes over a lock that nobody has touched for long', async () => {
    const dir = await createTempDir();
    await holdByOther(dir);
    const old = new Date(Date.now() - FIXED.lockStaleMs * 2);
    await utimes(join(dir, LOCK), old, old);
    await withStartLock(dir, KEY, 1_000, async () => expect(await readdir(dir)).toContain(OWNER));
    expect(await readdir(dir)).toEqual([]);
  });

  it('goes on without a lock where none can be made', async () => {
    const dir = join(await createTempDir(), 'missing');
    expect(await withStartLock(dir, KEY, FOREVER_MS, async () => 'done')).toBe('done');
  });

  it('does not mind that its lock is removed meanwhile', async () => {
    const dir = await createTempDir();
    const result = await withStartLock(dir, KEY, 1_000, async () => {
      await rm(join(dir, LOCK), { recursive: true });
      return 'done';
    });
    expect(result).toBe('done');
    expect(await readdir(dir)).toEqual([]);
  });

  it('leaves the owner file to whoever took its lost lock over', async () => {
    const dir = await createTempDir();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const other = JSON.stringify({ ...ownIdentity(), pid: 2 });
    await withStartLock(dir, KEY, 1_000, async () => {
      await rm(join(dir, LOCK), { recursive: true });
      await vi.advanceTimersByTimeAsync(FIXED.lockStaleMs);
      // The loss is noticed by a real look at the disk; these come after it.
      for (let left = 50; left > 0; left -= 1) await readdir(dir);
      await holdByOther(dir, other);
    });
    expect((await readdir(dir)).sort()).toEqual([LOCK, OWNER]);
    expect(await readFile(join(dir, OWNER), 'utf8')).toBe(other);
  });
});
