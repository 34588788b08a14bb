import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { LifetimeClock, type Needs } from '../../src/broker/lifetime-clock.ts';

const POLICY = { graceMs: 1_000, heldGraceMs: 200, helloCountsMs: 500, holdMs: 0, latenessMs: 500, lateRecheckMs: 5_000 };
const NOBODY: Needs = { attachedClients: 0, helloAt: [], holdsTakenAt: [], stop: undefined, isSuperseded: false };

describe('LifetimeClock', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setImmediate', 'performance', 'Date'] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  function createClock(): { clock: LifetimeClock; exits: string[]; set(needs: Partial<Needs>): void } {
    let needs = NOBODY;
    const exits: string[] = [];
    const clock = new LifetimeClock({
      policy: POLICY,
      readNeeds: () => needs,
      onNeeded: () => undefined,
      onExit: (reason) => exits.push(reason),
    });
    const set = (change: Partial<Needs>): void => {
      needs = { ...needs, ...change };
      clock.ask();
    };
    return { clock, exits, set };
  }

  it('exits once the grace is over, and not before', () => {
    const { clock, exits } = createClock();
    clock.ask();
    vi.advanceTimersByTime(999);
    expect(exits).toEqual([]);
    vi.advanceTimersByTime(10);
    expect(exits).toEqual(['idle']);
  });

  it('starts the grace anew when somebody came and went', () => {
    const { exits, set } = createClock();
    set({});
    vi.advanceTimersByTime(900);
    set({ attachedClients: 1 });
    vi.advanceTimersByTime(5_000);
    expect(exits).toEqual([]);
    set({ attachedClients: 0 });
    vi.advanceTimersByTime(999);
    expect(exits).toEqual([]);
    vi.advanceTimersByTime(10);
    expect(exits).toEqual(['idle']);
  });

  it('gives a second chance after a gap, also when something else than the timer asks first, and only once', () => {
    const { clock, exits } = createClock();
    clock.ask();
    // The process did not run: the clock moved, no timer fired, and an event comes before the timer.
    vi.setSystemTime(Date.now() + 60_000);
    const jump = vi.spyOn(performance, 'now').mockImplementation(() => 60_000);
    clock.ask();
    expect(exits).toEqual([]);
    jump.mockImplementation(() => 62_000);
    clock.ask();
    expect(exits).toEqual([]);
    expect(clock.exitsAt).toBe(65_000);
    jump.mockImplementation(() => 130_000);
    clock.ask();
    expect(exits).toEqual(['idle']);
    jump.mockRestore();
  });

  it('shortens the grace when the last hold was given back', () => {
    const { clock, exits } = createClock();
    clock.ask();
    vi.advanceTimersByTime(100);
    clock.noteHoldGivenBack();
    clock.ask();
    vi.advanceTimersByTime(210);
    expect(exits).toEqual(['idle']);
  });
});
