import { describe, expect, it } from 'vitest';
import { identify, observe } from '../../src/process/identity.ts';
import {
  ancestorsOf,
  descendantsOf,
  extendMarker,
  groupMembers,
  isBrokerDaemon,
  listProcesses,
  markerNames,
  type ProcessEntry,
  parsePsTable,
  readCommandLine,
  readMarker,
} from '../../src/process/tree.ts';

const NO_PID = 2 ** 22 + 1;

const entry = (pid: number, ppid: number, pgid = pid, startTime = String(pid)): ProcessEntry => ({ pid, ppid, pgid, startTime });
const known = (pid: number, startTime = String(pid)): { pid: number; startTime: string } => ({ pid, startTime });
const pids = (entries: readonly ProcessEntry[]): number[] => entries.map(({ pid }) => pid).sort((a, b) => a - b);

/** 10 has 11 and 12; 12 has 13, which left the group; 20 is somebody else's. */
const TABLE = [entry(1, 0), entry(10, 1), entry(11, 10, 10), entry(12, 10, 10), entry(13, 12), entry(20, 1), entry(21, 20)];

describe('descendantsOf', () => {
  it('finds all below a root, the root left out', () => {
    expect(pids(descendantsOf(TABLE, [known(10)]))).toEqual([11, 12, 13]);
  });

  it('finds nothing below a root that is gone, or whose pid is another process now', () => {
    expect(descendantsOf(TABLE, [known(99)])).toEqual([]);
    expect(descendantsOf(TABLE, [known(10, 'earlier')])).toEqual([]);
  });

  it('joins the trees of several roots without naming anyone twice', () => {
    expect(pids(descendantsOf(TABLE, [known(10), known(12), known(20)]))).toEqual([11, 13, 21]);
  });

  it('stops at a boundary, and leaves alone what is below it', () => {
    expect(pids(descendantsOf(TABLE, [known(10)], ({ pid }) => pid === 12))).toEqual([11]);
  });

  it('does not find what another parent has adopted', () => {
    const adopted = TABLE.map((one) => (one.pid === 13 ? { ...one, ppid: 1 } : one));
    expect(pids(descendantsOf(adopted, [known(10)]))).toEqual([11, 12]);
  });

  it('comes to an end in a table that was read while pids were reused', () => {
    const circle = [entry(10, 11), entry(11, 10), entry(12, 12)];
    expect(pids(descendantsOf(circle, [known(10)]))).toEqual([11]);
  });

  it('finds nothing without roots or table', () => {
    expect(descendantsOf(TABLE, [])).toEqual([]);
    expect(descendantsOf([], [known(10)])).toEqual([]);
  });
});

describe('groupMembers', () => {
  it('finds the members of one group', () => {
    expect(pids(groupMembers(TABLE, 10))).toEqual([10, 11, 12]);
    expect(groupMembers(TABLE, 99)).toEqual([]);
  });
});

describe('ancestorsOf', () => {
  it('goes up to the first process, itself included', () => {
    expect(ancestorsOf(TABLE, 13)).toEqual([13, 12, 10, 1]);
  });

  it('ends where a parent is missing, and in a circle', () => {
    expect(ancestorsOf([entry(5, 4)], 5)).toEqual([5, 4]);
    expect(ancestorsOf([entry(10, 11), entry(11, 10)], 10)).toEqual([10, 11]);
    expect(ancestorsOf([], 7)).toEqual([7]);
  });
});

describe('parsePsTable', () => {
  it('reads rows and leaves out zombies and what is no row', () => {
    const text = [
      '    1     0     1 Ss   Mon Jan  5 10:11:12 2026    ',
      '   70    69    69 Z+   Mon Jan  5 10:11:13 2026',
      '',
      'ps: something went wrong',
      '  400     1   399 S    Tue Jan  6 01:02:03 2026',
    ].join('\n');
    expect(parsePsTable(text)).toEqual([
      { pid: 1, ppid: 0, pgid: 1, startTime: 'Mon Jan  5 10:11:12 2026' },
      { pid: 400, ppid: 1, pgid: 399, startTime: 'Tue Jan  6 01:02:03 2026' },
    ]);
    expect(parsePsTable('')).toEqual([]);
  });
});

describe('a marker chain', () => {
  it('grows at its end', () => {
    expect(extendMarker(undefined, 'a/u1')).toBe('a/u1');
    expect(extendMarker('', 'a/u1')).toBe('a/u1');
    expect(extendMarker('a/u1', 'b/u2')).toBe('a/u1,b/u2');
  });

  it('names every broker it leads through, and no other', () => {
    const chain = extendMarker(extendMarker('abc/u1', 'def/u2'), 'ghi/u3');
    expect(['abc', 'def', 'ghi'].map((instance) => markerNames(chain, instance))).toEqual([true, true, true]);
    expect(['ab', 'bc', 'u1', 'abc/u1', 'x', ''].map((instance) => markerNames(chain, instance))).toEqual(Array(6).fill(false));
    expect(markerNames(undefined, 'abc')).toBe(false);
    expect(markerNames('', '')).toBe(false);
  });
});

describe('the living', () => {
  it('are listed, this process with its parent among them', async () => {
    const table = await listProcesses();
    const own = table.find(({ pid }) => pid === process.pid);
    expect(own).toMatchObject({ ppid: process.ppid, startTime: identify(process.pid)?.startTime });
    expect(ancestorsOf(table, process.pid)).toContain(process.ppid);
    expect(observe(process.ppid).state).toBe('alive');
  });

  it('say how they were started', () => {
    expect(readCommandLine(process.pid)?.[0]).toContain('node');
    expect(readCommandLine(NO_PID)).toBeUndefined();
    expect(isBrokerDaemon(process.pid)).toBe(false);
    expect(isBrokerDaemon(NO_PID)).toBe(false);
  });

  it('carry no marker unless a broker started them', () => {
    expect(readMarker(NO_PID)).toBeUndefined();
    expect(readMarker(process.pid)).toBe(process.env.CWD_BROKER_INSTANCE?.split(',').at(-1));
  });
});
