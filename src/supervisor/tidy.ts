/**
 * Removes what nobody needs any more: tombstones below the highest generation, folders nobody will
 * come back to, holds of host sessions that are gone. Processes are none of its business.
 */
import { FIXED } from '../config.ts';
import { BrokerError, describeError, errnoOf } from '../errors.ts';
import { classifyProbe, isAncestorReadable, probeDirectory } from '../registry/directory.ts';
import { giveBackHold, isHoldAlive, listHolds } from '../registry/holds.ts';
import { openRuntimeDir, stateLayout } from '../registry/paths.ts';
import type { BrokerRecord } from '../registry/record.ts';
import { lastTouched, removeFolder, removeLowerRecord } from '../registry/records.ts';
import { withStartLock } from '../registry/start-lock.ts';
import { describe, type ReapAction, type ReapOptions } from './reap-action.ts';
import type { Swept } from './sweep.ts';

/** Removes what says nothing any more: tombstones below the highest, and folders nobody will come back to. */
export async function tidy(swept: readonly Swept[], options: ReapOptions, note: (action: ReapAction) => void): Promise<void> {
  for (const one of swept) {
    const { record } = one;
    if (record === undefined) continue;
    const remove = await findRemoval(one, record, options);
    if (remove === undefined) continue;
    const problem = options.isDryRun ? undefined : await attempt(remove);
    note({ ...describe(one, record), action: 'remove', pids: [], ...(problem && { problem }) });
  }
}

async function findRemoval(swept: Swept, record: BrokerRecord, options: ReapOptions): Promise<(() => Promise<void>) | undefined> {
  const { folder, generation, key } = swept;
  if (swept.verdict === 'stopped' && !swept.isHighest && swept.facts.unclearChildren === 0) {
    return () => removeLowerRecord(folder, generation, record.instance);
  }
  if (!swept.isHighest || !(await isAbandoned(swept, record))) return undefined;
  const { logsDir } = stateLayout(options.config.stateDir);
  return async () => {
    const runtimeDir = await openRuntimeDir(options.env);
    await withStartLock(runtimeDir, key, FIXED.lockWaitMs, () => removeFolder(folder, generation, record.instance, logsDir, key));
  };
}

/** Ours: ended long ago in a directory that is gone. Another machine's: not touched by anybody for much longer. */
async function isAbandoned(swept: Swept, record: BrokerRecord): Promise<boolean> {
  if (swept.verdict === 'foreign') return Date.now() - (await lastTouched(swept.folder)) > FIXED.foreignKeptMs;
  if (swept.verdict !== 'stopped' || Date.now() - (record.end?.at ?? Date.now()) < FIXED.folderKeptMs) return false;
  const outcome = await probeDirectory(record.cwd.path, FIXED.probeDeadlineMs);
  return classifyProbe(record.cwd, outcome) === 'gone' && isAncestorReadable(record.cwd.path, FIXED.probeDeadlineMs);
}

/** Holds whose host session is proven gone. */
export async function dropDeadHolds(options: ReapOptions, note: (action: ReapAction) => void): Promise<void> {
  const { holdsDir } = stateLayout(options.config.stateDir);
  for (const hold of await listHolds(holdsDir)) {
    if (isHoldAlive(hold)) continue;
    if (!options.isDryRun) await giveBackHold(holdsDir, hold.sessionId, hold.identity);
    note({ cwd: hold.cwd, generation: 0, verdict: 'stale', action: 'drop-hold', pids: [hold.identity.pid] });
  }
}

/** @returns what kept it from being done. What one removal meets must not keep the others. */
async function attempt(remove: () => Promise<void>): Promise<string | undefined> {
  try {
    await remove();
    return undefined;
  } catch (error) {
    if (!(error instanceof BrokerError) && errnoOf(error) === undefined) throw error;
    return describeError(error);
  }
}
