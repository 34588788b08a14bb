import type { BigIntStats } from 'node:fs';
import { mkdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { DirectoryWatch, type DirectoryWatchOptions } from '../../src/broker/directory-watch.ts';
import { FIXED } from '../../src/config.ts';
import { createLog } from '../../src/log.ts';
import { type DirectoryIdentity, readDirectoryIdentity } from '../../src/registry/directory.ts';
import { createTempDir } from '../support/temp-dir.ts';

const TEN_MINUTES_MS = 600_000;

type Answer = () => Promise<BigIntStats>;

/** What stat says of the watched directory, in order; the last answer stays. Other paths answer well, unless told. */
class ScriptedStat {
  calls = 0;
  mostInFlight = 0;
  ancestor: Answer;
  readonly #path: string;
  readonly #answers: Answer[];
  readonly #inFlight = new Map<string, number>();

  constructor(path: string, ancestor: Answer, answers: readonly Answer[]) {
    this.#path = path;
    this.ancestor = ancestor;
    this.#answers = [...answers];
  }

  readonly read = async (path: string): Promise<BigIntStats> => {
    const running = (this.#inFlight.get(path) ?? 0) + 1;
    this.#inFlight.set(path, running);
    this.mostInFlight = Math.max(this.mostInFlight, running);
    try {
      return await this.#answer(path);
    } finally {
      this.#inFlight.set(path, running - 1);
    }
  };

  #answer(path: string): Promise<BigIntStats> {
    if (path !== this.#path) return this.ancestor();
    this.calls += 1;
    const answer = this.#answers.length > 1 ? this.#answers.shift() : this.#answers[0];
    if (answer === undefined) throw new Error('no answer');
    return answer();
  }
}

function fail(errno: string): Answer {
  return () => Promise.reject(Object.assign(new Error(errno), { code: errno }));
}

const never: Answer = () => new Promise(() => undefined);

interface World {
  dir: string;
  same: Answer;
  /** The same directory with other numbers. */
  other(numbers: Partial<Record<keyof DirectoryIdentity, bigint>>): Answer;
  identity: DirectoryIdentity;
  script(...answers: Answer[]): ScriptedStat;
}

async function createWorld(): Promise<World> {
  const dir = join(await createTempDir(), 'work');
  await mkdir(dir);
  const stats = await stat(dir, { bigint: true });
  const same: Answer = () => Promise.resolve(stats);
  return {
    dir,
    same,
    other: (numbers) => () =>
      Promise.resolve(Object.create(stats, Object.getOwnPropertyDescriptors({ ...stats, ...numbers })) as BigIntStats),
    identity: await readDirectoryIdentity(dir),
    script: (...answers) => new ScriptedStat(dir, same, answers),
  };
}

interface Watched {
  watch: DirectoryWatch;
  gone: string[];
}

async function startWatch(world: World, script: ScriptedStat, changes: Partial<DirectoryWatchOptions> = {}): Promise<Watched> {
  const gone: string[] = [];
  const watch = new DirectoryWatch({
    path: world.dir,
    identity: world.identity,
    log: createLog(() => undefined),
    isBusy: () => true,
    childPids: () => [],
    onGone: (answer) => gone.push(answer),
    stat: script.read,
    ...changes,
  });
  onTestFinished(() => watch.close());
  await watch.start();
  return { watch, gone };
}

const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

describe('DirectoryWatch', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'Date', 'performance'] });
  });
  afterEach(() => {
    vi.restoreAllMocks();
    vi.useRealTimers();
  });

  it.each(['EACCES', 'EIO', 'ESTALE', 'ENOTCONN', 'EPERM', 'ENOMEM', 'ELOOP'])('never decides by %s', async (errno) => {
    const world = await createWorld();
    const script = world.script(fail(errno));
    const { watch, gone } = await startWatch(world, script);
    await pass(TEN_MINUTES_MS);
    expect({ gone, last: watch.lastClass }).toEqual({ gone: [], last: 'unknown' });
    expect(script.calls).toBeGreaterThan(100);
  });

  it('never decides by a stat that does not return, and asks only once', async () => {
    const world = await createWorld();
    const script = world.script(never);
    const { watch, gone } = await startWatch(world, script);
    await pass(TEN_MINUTES_MS);
    expect({ gone, last: watch.lastClass, calls: script.calls }).toEqual({ gone: [], last: 'unknown', calls: 1 });
  });

  it('goes on as before once a hung stat returns', async () => {
    const world = await createWorld();
    let answer: (stats: BigIntStats) => void = () => undefined;
    const hung: Answer = () =>
      new Promise((resolve) => {
        answer = resolve;
      });
    const script = world.script(hung, world.same);
    const { watch, gone } = await startWatch(world, script);
    await pass(60_000);
    answer(await world.same());
    await pass(60_000);
    expect({ gone, last: watch.lastClass, most: script.mostInFlight }).toEqual({ gone: [], last: 'same', most: 1 });
    expect(script.calls).toBeGreaterThan(2);
  });

  it('forgives one hole in a directory that is there again', async () => {
    const world = await createWorld();
    const { watch, gone } = await startWatch(world, world.script(fail('ENOENT'), world.same));
    await pass(FIXED.probeBusyMs);
    expect(watch.lastClass).toBe('gone');
    await pass(TEN_MINUTES_MS);
    expect({ gone, last: watch.lastClass }).toEqual({ gone: [], last: 'same' });
  });

  it('starts over after every interruption of the same answer', async () => {
    const world = await createWorld();
    const hole = fail('ENOENT');
    const script = world.script(hole, hole, world.same, hole, hole, fail('EIO'), hole, hole, world.same);
    const { gone } = await startWatch(world, script);
    await pass(TEN_MINUTES_MS);
    expect(gone).toEqual([]);
  });

  it.each(['ENOENT', 'ENOTDIR'])('is sure after %s three times over two seconds, and says so once', async (errno) => {
    const world = await createWorld();
    const script = world.script(fail(errno));
    const { gone } = await startWatch(world, script);
    await pass(FIXED.probeBusyMs + FIXED.confirmSpanMs - 1);
    expect(gone).toEqual([]);
    await pass(1);
    expect({ gone, calls: script.calls }).toEqual({ gone: ['gone'], calls: FIXED.confirmTimes });
    await pass(TEN_MINUTES_MS);
    expect({ gone, calls: script.calls }).toEqual({ gone: ['gone'], calls: FIXED.confirmTimes });
  });

  it('is sure of another directory in its place', async () => {
    const world = await createWorld();
    const { gone } = await startWatch(world, world.script(world.other({ ino: 1n })));
    await pass(FIXED.probeBusyMs + FIXED.confirmSpanMs);
    expect(gone).toEqual(['replaced']);
  });

  it('counts gone and replaced apart', async () => {
    const world = await createWorld();
    const replaced = world.other({ ino: 1n });
    const { gone } = await startWatch(world, world.script(fail('ENOENT'), fail('ENOENT'), replaced, replaced, world.same));
    await pass(TEN_MINUTES_MS);
    expect(gone).toEqual([]);
  });

  it('does not decide by another device number, or by another birth time alone', async () => {
    const world = await createWorld();
    for (const numbers of [{ dev: 1n }, { birthtimeNs: 1n }]) {
      const { gone } = await startWatch(world, world.script(world.other(numbers)));
      await pass(TEN_MINUTES_MS);
      expect(gone).toEqual([]);
    }
  });

  it.each(['EACCES', 'EIO', 'ENOTCONN'])('is not sure while its parent says %s', async (errno) => {
    const world = await createWorld();
    const script = world.script(fail('ENOENT'));
    script.ancestor = fail(errno);
    const { gone } = await startWatch(world, script);
    await pass(TEN_MINUTES_MS);
    expect(gone).toEqual([]);
    script.ancestor = world.same;
    await pass(FIXED.confirmEveryMs);
    expect(gone).toEqual(['gone']);
  });

  it('answers a probe in time, and is not sure, while the stat of its parent does not return', async () => {
    const world = await createWorld();
    const script = world.script(fail('ENOENT'));
    script.ancestor = never;
    const { watch, gone } = await startWatch(world, script);
    let isAnswered = false;
    void watch.probe().then(() => {
      isAnswered = true;
    });
    await pass(FIXED.probeDeadlineMs * 2);
    expect({ isAnswered, gone }).toEqual({ isAnswered: true, gone: [] });
  });

  it('starts over after a gap in which the process did not run', async () => {
    const world = await createWorld();
    const { gone } = await startWatch(world, world.script(fail('ENOENT')));
    await pass(FIXED.probeBusyMs + FIXED.confirmEveryMs);
    const now = performance.now.bind(performance);
    vi.spyOn(performance, 'now').mockImplementation(() => now() + 3_600_000);
    await pass(FIXED.confirmEveryMs);
    expect(gone).toEqual([]);
    await pass(FIXED.confirmSpanMs);
    expect(gone).toEqual(['gone']);
  });

  it('never has more than one stat of a path in flight, whoever asks', async () => {
    const world = await createWorld();
    const slow: Answer = () => new Promise((resolve) => setTimeout(() => void world.same().then(resolve), 3_500));
    const script = world.script(slow);
    const { watch } = await startWatch(world, script);
    for (let step = 0; step < 200; step += 1) {
      void watch.probe();
      void watch.probe();
      await pass(700);
    }
    expect(script.mostInFlight).toBe(1);
    expect(script.calls).toBeGreaterThan(10);
  });

  it('probes less often while nobody is there, and sooner when somebody comes', async () => {
    const world = await createWorld();
    const script = world.script(world.same);
    const { watch } = await startWatch(world, script, { isBusy: () => false });
    await pass(FIXED.probeBusyMs + 4 * FIXED.probeIdleMs);
    expect(script.calls).toBe(5);
    watch.expectSoon();
    await pass(FIXED.probeBusyMs);
    expect(script.calls).toBe(6);
  });

  it('does nothing more once it is closed, also when closed in the middle of a probe', async () => {
    const world = await createWorld();
    const script = world.script(fail('ENOENT'));
    const { watch, gone } = await startWatch(world, script);
    await pass(FIXED.probeBusyMs + FIXED.confirmEveryMs);
    const probing = watch.probe();
    watch.close();
    await probing;
    await pass(TEN_MINUTES_MS);
    expect({ gone, calls: script.calls }).toEqual({ gone: [], calls: 3 });
  });

  it('says how it notices changes', async () => {
    const world = await createWorld();
    const { watch } = await startWatch(world, world.script(world.same));
    expect(watch.mode).toMatch(/^(events|off \(\w+\))$/);
  });
});
