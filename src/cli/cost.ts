/** What a broker and everything it runs cost: memory from /proc, CPU from pidusage. */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { hasErrno } from '../errors.ts';
import { observe } from '../process/identity.ts';
import { descendantsOf, type KnownProcess, listProcesses } from '../process/tree.ts';

export interface Cost {
  rssBytes?: number;
  /** Memory that no other process shares. */
  privateBytes?: number;
  cpuPercent?: number;
  processes: number;
}

/** CPU figures need two looks this far apart, ms; the second decides. */
const SAMPLE_MS = 250;
const DEADLINE_MS = 2_000;

/** Cost of the process trees below the given pids, summed. Processes that end meanwhile count for nothing. */
export async function measureCost(pids: readonly number[]): Promise<Cost> {
  const roots = pids.flatMap((pid): KnownProcess[] => {
    const seen = observe(pid);
    return seen.state === 'alive' ? [{ pid, startTime: seen.startTime }] : [];
  });
  const below = descendantsOf(await listProcesses(), roots);
  const all = [...new Set([...roots, ...below].map(({ pid }) => pid))];
  const memory = all.map(readMemory);
  const cpuPercent = await measureCpu(all);
  return {
    ...(memory.every((one) => one !== undefined) && {
      rssBytes: memory.reduce((sum, one) => sum + (one?.rssBytes ?? 0), 0),
      privateBytes: memory.reduce((sum, one) => sum + (one?.privateBytes ?? 0), 0),
    }),
    ...(cpuPercent !== undefined && { cpuPercent }),
    processes: all.length,
  };
}

function readMemory(pid: number): { rssBytes: number; privateBytes: number } | undefined {
  try {
    return parseSmapsRollup(readFileSync(`/proc/${pid}/smaps_rollup`, 'latin1'));
  } catch (error) {
    if (hasErrno(error, 'ENOENT', 'ESRCH', 'EACCES', 'EPERM')) return undefined;
    throw error;
  }
}

/** Sums `Rss` and the `Private_*` lines, which are in kB. Pure. */
export function parseSmapsRollup(text: string): { rssBytes: number; privateBytes: number } {
  const sum = (pattern: RegExp): number =>
    [...text.matchAll(pattern)].reduce((total, match) => total + Number(match[1]) * 1024, 0);
  return { rssBytes: sum(/^Rss:\s+(\d+) kB/gm), privateBytes: sum(/^Private_(?:Clean|Dirty):\s+(\d+) kB/gm) };
}

/** The library's first figure is always 0, so it is asked twice; whatever it cannot say is left out. */
async function measureCpu(pids: readonly number[]): Promise<number | undefined> {
  if (pids.length === 0) return undefined;
  // With PIDUSAGE_MAXAGE=0 in the environment the library recurses until no descriptor is left.
  for (const name of Object.keys(process.env)) if (name.startsWith('PIDUSAGE_')) delete process.env[name];
  const { default: pidusage } = await import('pidusage');
  const look = async (): Promise<number | undefined> => {
    try {
      const figures = (await pidusage([...pids])) as Record<string, { cpu: number } | null>;
      return Object.values(figures).reduce((sum, one) => sum + (one?.cpu ?? 0), 0);
    } catch (error) {
      if (hasErrno(error, 'ENOENT', 'ESRCH')) return undefined;
      throw error;
    }
  };
  const measured = look().then(async () => {
    await sleep(SAMPLE_MS);
    return look();
  });
  const percent = await Promise.race([measured, sleep(DEADLINE_MS, undefined, { ref: false })]);
  return percent === undefined ? undefined : Math.round(percent * 10) / 10;
}
