/** Starts one detached `reap` after a broker serves, so that even without any hook a crash is cleaned up by the next use of any broker. */
import { existsSync, statSync, writeFileSync } from 'node:fs';
import { FIXED } from '../config.ts';
import { describeError, hasErrno } from '../errors.ts';
import { binScript } from '../installation.ts';
import type { Log } from '../log.ts';
import { daemonEnvironment, startDetached } from '../process/detach.ts';
import type { StateLayout } from '../registry/paths.ts';
import { listGenerations, readGeneration } from '../registry/records.ts';

export interface DueReap {
  /** Starts it now, if it has not been started. */
  now(): void;
}

/**
 * Starts it soon when it is due, or when the broker before this one left no tombstone. Not at once:
 * on a small machine it would take the time of the client that waits for its first upstream. Never fails.
 */
export async function startReapIfDue(
  layout: StateLayout,
  folder: string,
  generation: number,
  log: Log,
): Promise<DueReap | undefined> {
  try {
    if (!isDue(layout.reapStamp) && !(await hasPredecessorCrashed(folder, generation))) return undefined;
  } catch (error) {
    log.warn('reap.not-started', { message: describeError(error) });
    return undefined;
  }
  let isStarted = false;
  const now = (): void => {
    if (isStarted) return;
    isStarted = true;
    clearTimeout(timer);
    startReap(layout, log);
  };
  const timer = setTimeout(now, FIXED.reapDelayMs);
  return { now };
}

/** Starts it now, detached. Never fails. */
export function startReap(layout: StateLayout, log: Log): void {
  try {
    writeFileSync(layout.reapStamp, '', { mode: 0o600 });
    const script = binScript('broker.js');
    if (!existsSync(script)) throw new Error(`${script} is gone`);
    startDetached({ script, args: ['reap', '--quiet'], env: daemonEnvironment(process.env) });
  } catch (error) {
    log.warn('reap.not-started', { message: describeError(error) });
  }
}

function isDue(stamp: string): boolean {
  try {
    return Date.now() - statSync(stamp).mtimeMs > FIXED.reapEveryMs;
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return true;
    throw error;
  }
}

async function hasPredecessorCrashed(folder: string, generation: number): Promise<boolean> {
  const before = (await listGenerations(folder)).find((one) => one < generation);
  const found = before === undefined ? undefined : await readGeneration(folder, before);
  return found?.reading.kind === 'record' && found.reading.record.phase !== 'stopped';
}
