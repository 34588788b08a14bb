import { afterEach, describe, expect, it, vi } from 'vitest';
import { ownIdentity } from '../../src/process/identity.ts';
import { observeTree, type StopTarget, sendSignal, signalIdentity, signalTree, stopTree } from '../../src/process/stop.ts';

/** Larger than any pid Linux gives: nobody is ever signalled by these tests. */
const NO_PID = 2 ** 22 + 1;
const TIMES = { stdinMs: 5_000, termMs: 5_000, killMs: 5_000 };

function gone(changes: Partial<StopTarget> = {}): StopTarget {
  return { pid: NO_PID, startTime: '1', pgid: NO_PID, marker: 'instance/u1', known: [], ...changes };
}

/** Keeps signals from getting through, and lists them. Signal 0 only asks, so it is left out. */
function catchSignals(): () => Array<[number, unknown]> {
  const kill = vi.spyOn(process, 'kill').mockImplementation(() => true);
  return () => kill.mock.calls.flatMap(([pid, signal]): Array<[number, unknown]> => (signal === 0 ? [] : [[pid, signal]]));
}

afterEach(() => {
  vi.restoreAllMocks();
});

describe('sendSignal', () => {
  it('says that nobody was there', () => {
    expect(sendSignal(NO_PID, 'SIGTERM')).toBe('gone');
    expect(sendSignal(-NO_PID, 'SIGTERM')).toBe('gone');
  });

  it('says that somebody else is there', () => {
    const refused = Object.assign(new Error('kill EPERM'), { code: 'EPERM' });
    vi.spyOn(process, 'kill').mockImplementationOnce(() => {
      throw refused;
    });
    expect(sendSignal(NO_PID, 'SIGTERM')).toBe('refused');
  });

  it('does not hide what it did not expect', () => {
    expect(() => sendSignal(NO_PID, 'SIGNONE' as NodeJS.Signals)).toThrow(/Unknown signal/);
  });
});

describe('signalIdentity', () => {
  it.each([
    ['sent', 'the very process', {}],
    ['gone', 'a pid that another process has now', { startTime: '1' }],
    ['gone', 'a living pid of an earlier boot', { bootId: 'before' }],
    ['refused', 'a process of another pid namespace', { pidNamespace: 'pid:[1]' }],
  ] as const)('says %s of %s', (expected, _, changes) => {
    const signals = catchSignals();
    expect(signalIdentity({ ...ownIdentity(), ...changes }, 'SIGTERM')).toBe(expected);
    expect(signals()).toEqual(expected === 'sent' ? [[process.pid, 'SIGTERM']] : []);
  });

  it('says gone of a pid that nobody has', () => {
    expect(signalIdentity({ ...ownIdentity(), pid: NO_PID }, 'SIGTERM')).toBe('gone');
  });
});

describe('a child that is gone', () => {
  it('has nobody left to see or to signal', async () => {
    expect(await observeTree(gone())).toEqual([]);
    expect(await signalTree(gone(), 'SIGTERM')).toEqual([]);
  });

  it('needs no step of the ladder', async () => {
    expect(await stopTree(gone(), TIMES)).toEqual({ isStopped: true, step: 'none', survivors: [] });
  });

  it('has its stdin ended first where there is one', async () => {
    const endStdin = vi.fn();
    expect(await stopTree(gone(), TIMES, endStdin)).toEqual({ isStopped: true, step: 'stdin', survivors: [] });
    expect(endStdin).toHaveBeenCalledOnce();
  });
});

describe('a number that is somebody else’s now', () => {
  it('gets no signal as a group: this process has it, and is not the recorded one', async () => {
    const signals = catchSignals();
    await signalTree(gone({ pid: process.pid, startTime: 'earlier', pgid: process.pid }), 'SIGKILL');
    expect(signals()).toEqual([]);
  });

  it('gets no signal as a process that left its group', async () => {
    const signals = catchSignals();
    await signalTree(gone({ known: [{ pid: process.pid, startTime: 'earlier' }] }), 'SIGKILL');
    expect(signals()).toEqual([]);
  });
});

describe('a process that left the group of its child', () => {
  it('is signalled by itself as long as it is the recorded one', async () => {
    const { pid, startTime } = ownIdentity();
    const signals = catchSignals();
    await signalTree(gone({ known: [{ pid, startTime }] }), 'SIGTERM');
    expect(signals()).toContainEqual([pid, 'SIGTERM']);
    expect(signals().filter(([to]) => to < 0)).toEqual([]);
  });
});
