import { describe, expect, it } from 'vitest';
import { measureCost, parseSmapsRollup } from '../../src/cli/cost.ts';

const ROLLUP = `00400000-7ffd2f7f9000 ---p 00000000 00:00 0                [rollup]
Rss:               47000 kB
Pss:               30000 kB
Pss_Dirty:         11111 kB
Shared_Clean:       9000 kB
Shared_Dirty:        100 kB
Private_Clean:      2000 kB
Private_Dirty:     35900 kB
Referenced:        47000 kB
Private_Hugetlb:    7777 kB
Swap:                  0 kB
`;

describe('parseSmapsRollup', () => {
  it('takes what is resident and what is private, from kB to bytes', () => {
    expect(parseSmapsRollup(ROLLUP)).toEqual({ rssBytes: 47_000 * 1024, privateBytes: 37_900 * 1024 });
  });

  it('finds nothing in nothing', () => {
    expect(parseSmapsRollup('')).toEqual({ rssBytes: 0, privateBytes: 0 });
  });
});

describe('measureCost', () => {
  it('counts processes that are gone for nothing', async () => {
    expect(await measureCost([2 ** 22 + 1])).toMatchObject({ processes: 0 });
  });

  it('counts a process once, and is not led astray by settings of its library', async () => {
    process.env.PIDUSAGE_MAXAGE = '0';
    const cost = await measureCost([process.pid, process.pid]);
    expect(cost.processes).toBe(1);
    expect(cost.rssBytes).toBeGreaterThan(cost.privateBytes ?? 0);
    expect(cost.privateBytes).toBeGreaterThan(1_000_000);
    expect(cost.cpuPercent).toBeGreaterThanOrEqual(0);
    expect(process.env.PIDUSAGE_MAXAGE).toBeUndefined();
  });
});
