import { describe, expect, it } from 'vitest';
import { Leases } from '../../src/broker/leases.ts';

describe('Leases', () => {
  it('lists what is held, with reason and age', () => {
    const leases = new Leases();
    leases.acquire('request', 5);
    leases.acquire('stream', 7);
    expect(leases.list()).toEqual([
      { reason: 'request', sinceAt: 5 },
      { reason: 'stream', sinceAt: 7 },
    ]);
    expect(leases.size).toBe(2);
  });

  it('keeps two leases of one reason apart', () => {
    const leases = new Leases();
    const first = leases.acquire('request', 1);
    leases.acquire('request', 2);
    first.release();
    expect(leases.list()).toEqual([{ reason: 'request', sinceAt: 2 }]);
  });

  it('releases once, however often it is asked', () => {
    const sizes: number[] = [];
    const leases = new Leases(() => sizes.push(leases.size));
    const first = leases.acquire('first', 1);
    leases.acquire('second', 1);
    first.release();
    first.release();
    expect(sizes).toEqual([1]);
    expect(leases.size).toBe(1);
  });

  it('hands out a list that later changes do not touch', () => {
    const leases = new Leases();
    const lease = leases.acquire('request', 1);
    const before = leases.list();
    lease.release();
    expect(before).toHaveLength(1);
  });
});
