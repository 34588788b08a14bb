import { chmod, lstat, mkdir, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FIXED } from '../../src/config.ts';
import {
  brokerKey,
  canonicalRoot,
  fitsSocketPath,
  isSafeId,
  isWithin,
  judgeRuntimeDir,
  makeStateDirs,
  openRuntimeDir,
  readConfigFile,
  readIfThere,
  runtimeDirCandidates,
  socketNames,
  stateLayout,
  writeAtomically,
} from '../../src/registry/paths.ts';
import { createTempDir } from '../support/temp-dir.ts';

const UID = process.getuid?.() ?? 0;

describe('canonicalRoot', () => {
  it('is one spelling for a directory however it is named', async () => {
    const dir = await createTempDir();
    await mkdir(join(dir, 'work'));
    await symlink(join(dir, 'work'), join(dir, 'link'));
    const root = join(dir, 'work');
    for (const spelling of [root, `${root}/`, `${root}/.`, `${root}/../work`, join(dir, 'link'), `${dir}//work`]) {
      expect(await canonicalRoot(spelling)).toBe(root);
    }
  });

  it('names a deleted directory as it was named before, also below links', async () => {
    const dir = await createTempDir();
    await mkdir(join(dir, 'real', 'a', 'b'), { recursive: true });
    await symlink(join(dir, 'real'), join(dir, 'link'));
    const before = await canonicalRoot(join(dir, 'link', 'a', 'b'));
    await rm(join(dir, 'real', 'a'), { recursive: true });
    expect(await canonicalRoot(join(dir, 'link', 'a', 'b'))).toBe(before);
    expect(before).toBe(join(dir, 'real', 'a', 'b'));
  });

  it('names what lies below a file, and a link that leads nowhere', async () => {
    const dir = await createTempDir();
    await writeFile(join(dir, 'file'), '');
    await symlink(join(dir, 'nowhere'), join(dir, 'dangling'));
    await symlink(join(dir, 'loop'), join(dir, 'loop'));
    expect(await canonicalRoot(join(dir, 'file', 'below'))).toBe(join(dir, 'file', 'below'));
    expect(await canonicalRoot(join(dir, 'dangling'))).toBe(join(dir, 'dangling'));
    expect(await canonicalRoot(join(dir, 'loop', 'x'))).toBe(join(dir, 'loop', 'x'));
  });

  it('knows the root', async () => {
    expect(await canonicalRoot('/')).toBe('/');
    expect(await canonicalRoot('/no-such-directory-here')).toBe('/no-such-directory-here');
  });
});

describe('isWithin', () => {
  it.each([
    ['/a/b', '/a/b', true],
    ['/a/b/c', '/a/b', true],
    ['/a/bc', '/a/b', false],
    ['/a/b-2/c', '/a/b', false],
    ['/a', '/a/b', false],
    ['/', '/', true],
    ['/a', '/', true],
    ['/ab/c', '/a', false],
  ])('says of %s in %s: %s', (path, root, expected) => {
    expect(isWithin(path, root)).toBe(expected);
  });
});

describe('names', () => {
  it('gives a root one key, and another one for another path, machine or pid namespace', () => {
    const key = brokerKey('/home/me/my app', 'm1', 'n1');
    expect(key).toMatch(/^my-app-[0-9a-f]{12}$/);
    expect(brokerKey('/home/me/my app', 'm1', 'n1')).toBe(key);
    const others = [brokerKey('/home/you/my app', 'm1', 'n1'), brokerKey('/home/me/my app', 'm2', 'n1')];
    expect(new Set([key, ...others, brokerKey('/home/me/my app', 'm1', 'n2')]).size).toBe(4);
  });

  it.each(['/', '/…', '/a/..b', `/${'x'.repeat(255)}`, '/日本語', '/a\nb'])('makes a safe key of %j', (root) => {
    expect(isSafeId(brokerKey(root))).toBe(true);
  });

  it.each(['', '.', '..', 'a/b', 'a.b', 'a b', 'é', 'a\n', 'x'.repeat(65), 7, undefined, null])(
    'does not take %j for an id',
    (id) => {
      expect(isSafeId(id)).toBe(false);
    },
  );

  it('gives each run socket names of its own, all of one length', () => {
    const names = socketNames('/run', 12, '0123456789abcdef');
    expect(names).toEqual({
      public: '/run/12-0123456789ab.sock',
      bind: '/run/12-0123456789ab.bind',
      hidden: '/run/12-0123456789ab.hide',
    });
  });
});

describe('judgeRuntimeDir', () => {
  const ours = { isSymbolicLink: () => false, isDirectory: () => true, uid: 1000, mode: 0o40700 };
  it.each([
    ['a private folder of ours', {}, undefined],
    ['a link', { isSymbolicLink: () => true }, 'it is a symbolic link'],
    ['a file', { isDirectory: () => false }, 'it is not a directory'],
    ["another user's folder", { uid: 0 }, 'it belongs to uid 0, not to 1000'],
    ['a folder for everybody', { mode: 0o40777 }, 'its mode is 0777, not 0700'],
    ['a folder others may read', { mode: 0o40755 }, 'its mode is 0755, not 0700'],
    ['a folder its group may enter', { mode: 0o40710 }, 'its mode is 0710, not 0700'],
    ['a folder we may not enter', { mode: 0o40600 }, 'its mode is 0600, not 0700'],
  ])('says of %s: %s', (_, changes, expected) => {
    expect(judgeRuntimeDir({ ...ours, ...changes }, 1000)).toBe(expected);
  });
});

describe('openRuntimeDir', () => {
  it('makes the configured folder, private, with all above it', async () => {
    const dir = join(await createTempDir(), 'a', 'b');
    expect(await openRuntimeDir({ CWD_BROKER_RUNTIME_DIR: dir })).toBe(dir);
    expect((await lstat(dir)).mode & 0o777).toBe(0o700);
    expect(await openRuntimeDir({ CWD_BROKER_RUNTIME_DIR: `${dir}/` })).toBe(dir);
  });

  it('refuses a link, a folder for everybody and a file, and says why', async () => {
    const dir = await createTempDir();
    await mkdir(join(dir, 'real'), { mode: 0o700 });
    await symlink(join(dir, 'real'), join(dir, 'link'));
    await mkdir(join(dir, 'open'));
    await chmod(join(dir, 'open'), 0o777);
    await writeFile(join(dir, 'file'), '');
    for (const [name, why] of [
      ['link', 'symbolic link'],
      ['open', '0777'],
      ['file', 'not a directory'],
    ]) {
      await expect(openRuntimeDir({ CWD_BROKER_RUNTIME_DIR: join(dir, String(name)) })).rejects.toMatchObject({
        code: 'UNAVAILABLE',
        retryable: false,
        message: expect.stringContaining(String(why)),
      });
    }
  });

  it("refuses another user's folder", async () => {
    const dir = await createTempDir();
    await expect(openRuntimeDir({ CWD_BROKER_RUNTIME_DIR: dir }, UID + 1)).rejects.toThrow(/belongs to uid/);
  });

  it('refuses a configured folder that is no absolute path', async () => {
    const dir = await createTempDir();
    await expect(openRuntimeDir({ CWD_BROKER_RUNTIME_DIR: 'run', TMPDIR: dir })).rejects.toMatchObject({
      code: 'USAGE',
      message: expect.stringContaining('CWD_BROKER_RUNTIME_DIR'),
    });
  });

  it('passes over a session folder that is gone', async () => {
    const dir = await createTempDir();
    const env = { XDG_RUNTIME_DIR: join(dir, 'gone'), TMPDIR: dir };
    expect(await openRuntimeDir(env, UID)).toBe(join(dir, `cwd-broker-${UID}`));
    expect(await readdir(dir)).toEqual([`cwd-broker-${UID}`]);
  });

  it('falls back when a name is too long in bytes, though not in characters', async () => {
    const dir = await createTempDir();
    const long = join(dir, 'é'.repeat(30));
    expect(long.length).toBeLessThan(70);
    expect(await openRuntimeDir({ CWD_BROKER_RUNTIME_DIR: long, XDG_RUNTIME_DIR: dir })).toBe(join(dir, 'cwd-broker'));
    await expect(stat(long)).rejects.toThrow('ENOENT');
  });

  it('says that no folder is short enough', async () => {
    // No real uid makes the last resort too long, so this one is not a number.
    const uid = '9'.repeat(90) as unknown as number;
    await expect(openRuntimeDir({ TMPDIR: `/${'x'.repeat(90)}` }, uid)).rejects.toMatchObject({
      code: 'PATH_TOO_LONG',
      hint: expect.stringContaining('CWD_BROKER_RUNTIME_DIR'),
    });
  });
});

describe('socket paths', () => {
  it('fit up to the last byte that the system can bind', () => {
    const longest = `/${'x'.repeat(FIXED.socketPathBytes - 27)}`;
    expect(fitsSocketPath(longest)).toBe(true);
    expect(Buffer.byteLength(socketNames(longest, 9_999_999, 'a'.repeat(32)).public)).toBe(FIXED.socketPathBytes);
    expect(fitsSocketPath(`${longest}x`)).toBe(false);
    expect(fitsSocketPath(`${longest.slice(0, -1)}é`)).toBe(false);
  });

  it('are looked for in the documented order, relative names left out', () => {
    const env = { CWD_BROKER_RUNTIME_DIR: '/r/', XDG_RUNTIME_DIR: '/x', TMPDIR: '/t/' };
    expect(runtimeDirCandidates(env, 5)).toEqual(['/r', '/x/cwd-broker', '/t/cwd-broker-5', '/tmp/cwd-broker-5']);
    expect(runtimeDirCandidates({ XDG_RUNTIME_DIR: 'x', TMPDIR: '' }, 5)).toEqual(['/tmp/cwd-broker-5']);
  });
});

describe('the state dir', () => {
  it('is made private, and again without harm', async () => {
    const layout = stateLayout(join(await createTempDir(), 'state'));
    await makeStateDirs(layout, 'app-1');
    await makeStateDirs(layout, 'app-1');
    for (const dir of [layout.folder('app-1'), layout.brokersDir, layout.holdsDir, layout.logsDir, layout.stateDir]) {
      expect((await stat(dir)).mode & 0o777).toBe(0o700);
    }
  });

  it('says that it cannot be written', async () => {
    const dir = await createTempDir();
    await writeFile(join(dir, 'state'), '');
    await expect(makeStateDirs(stateLayout(join(dir, 'state')), 'app-1')).rejects.toMatchObject({ code: 'STORE_FAILED' });
  });

  it('may hold a config.json, which has to be JSON', async () => {
    const dir = await createTempDir();
    expect(readConfigFile(dir)).toEqual({});
    await writeFile(join(dir, 'config.json'), '{"graceMs": 5}');
    expect(readConfigFile(dir)).toEqual({ graceMs: 5 });
    await writeFile(join(dir, 'config.json'), '{graceMs: 5}');
    expect(() => readConfigFile(dir)).toThrow(/config\.json is not valid JSON/);
  });
});

describe('files', () => {
  it('are written whole, for the owner alone, and leave nothing beside them', async () => {
    const dir = await createTempDir();
    const file = join(dir, 'file');
    await Promise.all(Array.from({ length: 20 }, (_, at) => writeAtomically(file, String(at + 10).repeat(1000))));
    const text = (await readIfThere(file)) ?? '';
    expect(text).toBe(text.slice(0, 2).repeat(1000));
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect(await readdir(dir)).toEqual(['file']);
  });

  it('that cannot be written leave nothing beside them', async () => {
    const dir = await createTempDir();
    await mkdir(join(dir, 'folder', 'full'), { recursive: true });
    await expect(writeAtomically(join(dir, 'folder'), 'x')).rejects.toThrow();
    expect(await readdir(dir)).toEqual(['folder']);
  });

  it('that are not there read as undefined', async () => {
    const dir = await createTempDir();
    await writeFile(join(dir, 'file'), '');
    expect(await readIfThere(join(dir, 'missing'))).toBeUndefined();
    expect(await readIfThere(join(dir, 'file', 'below'))).toBeUndefined();
  });
});
