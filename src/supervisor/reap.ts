/**
 * Acts on verdicts: asks, stops, then retires. The only place that does. Everything that is signalled
 * or removed is verified again right before, since the sweep that judged it is history by then.
 *
 * Not touched, whatever else is wrong: brokers that answer or are alive in a directory that exists,
 * records that cannot be read, and whatever belongs to another machine, namespace or user.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { askShutdown } from '../client/control-calls.ts';
import { dial } from '../client/dial.ts';
import { type Config, FIXED } from '../config.ts';
import { BrokerError, describeError } from '../errors.ts';
import { ownIdentity, verifyIdentity } from '../process/identity.ts';
import { signalIdentity, signalTree } from '../process/stop.ts';
import { readCommandLine } from '../process/tree.ts';
import { classifyProbe, probeDirectory } from '../registry/directory.ts';
import { appendHistory } from '../registry/history.ts';
import { openRuntimeDir, stateLayout } from '../registry/paths.ts';
import type { BrokerRecord, RecordEnd } from '../registry/record.ts';
import { createRecord, readGeneration, readHighest, removeLowerRecord, removeSocket } from '../registry/records.ts';
import { withStartLock } from '../registry/start-lock.ts';
import { describe, type ReapAction, type ReapOptions } from './reap-action.ts';
import { childTarget, type Swept, sweep } from './sweep.ts';
import { dropDeadHolds, tidy } from './tidy.ts';

export interface ReapResult {
  actions: ReapAction[];
  /** Something that should go is still there. */
  isUnfinished: boolean;
}

/** Verdicts a reap does something about. */
const REAPED = new Set<Swept['verdict']>(['stale', 'orphan', 'cwd-gone']);

/** Sweeps and acts, up to `passes` times with a pause between them, until nothing is left to do. */
export async function reap(options: ReapOptions): Promise<ReapResult> {
  const actions: ReapAction[] = [];
  const note = (action: ReapAction): void => {
    actions.push(action);
    options.onAction?.(action);
  };
  /** Who was sent SIGTERM in an earlier pass, by pid and start time. */
  const termed = new Set<string>();
  const passes = options.isDryRun ? 1 : (options.passes ?? FIXED.reapPasses);
  for (let pass = 1; ; pass += 1) {
    const swept = await sweepFor(options);
    const before = new Set(termed);
    let isUnfinished = false;
    for (const one of swept) {
      if (REAPED.has(one.verdict)) isUnfinished = (await act(one, options, before, termed, note)) || isUnfinished;
      else isUnfinished ||= needsPatience(one);
    }
    if (!isUnfinished || pass >= passes) {
      await dropDeadHolds(options, note);
      await tidy(swept, options, note);
      return { actions, isUnfinished };
    }
    await sleep(FIXED.reapPauseMs);
  }
}

/** Alive in a directory that seems gone: somebody with more time has to be sure of it. */
function needsPatience({ facts }: Swept): boolean {
  return (
    facts.broker === 'ours' && !facts.isDirectorySurelyGone && (facts.directory === 'gone' || facts.directory === 'replaced')
  );
}

function sweepFor(options: ReapOptions): Promise<Swept[]> {
  return sweep({
    config: options.config,
    isPatient: !options.isHasty,
    ...(options.keys && { keys: options.keys }),
    ...(options.isHasty && { dialMs: FIXED.hookBudgetMs / 3 }),
  });
}

/** @returns true when it has to be looked at again. */
async function act(
  swept: Swept,
  options: ReapOptions,
  before: ReadonlySet<string>,
  termed: Set<string>,
  note: (action: ReapAction) => void,
): Promise<boolean> {
  const { record } = swept;
  if (record === undefined) return false;
  try {
    if (swept.verdict === 'cwd-gone') return await endBroker(swept, record, options, before, termed, note);
    if (swept.verdict === 'orphan' && (await endChildren(swept, record, options, before, termed, note))) return true;
    await retire(swept, record, options, note);
    return false;
  } catch (error) {
    if (!(error instanceof BrokerError)) throw error;
    note({ ...describe(swept, record), action: 'retire', pids: [], problem: describeError(error) });
    return true;
  }
}

/** A broker whose directory is gone: ask it, else SIGTERM, and SIGKILL when an earlier pass's SIGTERM was ignored. */
async function endBroker(
  swept: Swept,
  record: BrokerRecord,
  options: ReapOptions,
  before: ReadonlySet<string>,
  termed: Set<string>,
  note: (action: ReapAction) => void,
): Promise<boolean> {
  const { broker } = record;
  if (broker === undefined) return false;
  const common = { ...describe(swept, record), pids: [broker.pid] };
  const key = processKey(broker);
  const signal = before.has(key) ? 'SIGKILL' : 'SIGTERM';
  if (options.isDryRun) {
    note({ ...common, action: 'sigterm' });
    return false;
  }
  if (signal === 'SIGTERM' && (await ask(record, options.config))) {
    note({ ...common, action: 'ask' });
    return true;
  }
  const problem = await verifyCwdGone(swept, record);
  // Identity, script and signal are one synchronous turn: nothing can come between them.
  const sent = problem ?? (namesInstance(broker.pid, record.instance) ? signalIdentity(broker, signal) : 'not our script');
  termed.add(key);
  note({
    ...common,
    action: signal === 'SIGKILL' ? 'sigkill' : 'sigterm',
    ...(sent !== 'sent' && sent !== 'gone' && { problem: sent }),
  });
  return true;
}

async function ask(record: BrokerRecord, config: Config): Promise<boolean> {
  if (record.phase !== 'serving') return false;
  const dialed = await dial({ record, config, clientName: 'reap' });
  if (dialed.kind !== 'ok') return false;
  try {
    await askShutdown(dialed.connection, { reason: 'cwd-gone' });
    return true;
  } catch (error) {
    if (error instanceof BrokerError) return false;
    throw error;
  } finally {
    dialed.connection.close();
  }
}

/** Reads everything again that the verdict stood on; a reason not to signal, or undefined. */
async function verifyCwdGone(swept: Swept, record: BrokerRecord): Promise<string | undefined> {
  const found = await readGeneration(swept.folder, swept.generation);
  if (found?.reading.kind !== 'record' || found.reading.record.instance !== record.instance)
    return 'its record changed meanwhile';
  const answer = classifyProbe(record.cwd, await probeDirectory(record.cwd.path, FIXED.probeDeadlineMs));
  return answer === 'gone' || answer === 'replaced' ? undefined : `its directory is ${answer} now`;
}

/** Start time decides; that the process was started for this very run is checked beside it, where that can be read. */
function namesInstance(pid: number, instance: string): boolean {
  const words = readCommandLine(pid);
  return words === undefined || words.includes(instance);
}

/** Children whose broker is gone: SIGTERM, and in a later pass SIGKILL. @returns true while any is left. */
async function endChildren(
  swept: Swept,
  record: BrokerRecord,
  options: ReapOptions,
  before: ReadonlySet<string>,
  termed: Set<string>,
  note: (action: ReapAction) => void,
): Promise<boolean> {
  let isAnyLeft = false;
  for (const child of record.children) {
    if (options.isDryRun) {
      note({ ...describe(swept, record), action: 'sigterm', pids: [child.pid] });
      continue;
    }
    if (isOwnerAlive(record)) return true;
    const key = processKey(child);
    const signal = before.has(key) ? 'SIGKILL' : 'SIGTERM';
    const pids = (await signalTree(childTarget(record, child), signal)).map(({ pid }) => pid);
    if (pids.length === 0) continue;
    termed.add(key);
    isAnyLeft = true;
    note({ ...describe(swept, record), action: signal === 'SIGKILL' ? 'sigkill' : 'sigterm', pids });
  }
  return isAnyLeft;
}

function isOwnerAlive(record: BrokerRecord): boolean {
  const verdict = record.broker && verifyIdentity(record.broker);
  return record.phase !== 'stopped' && (verdict === 'ours' || verdict === 'unknown');
}

/** Closes the book on a dead run: a tombstone as the next generation, its socket gone, its old files gone. */
async function retire(
  swept: Swept,
  record: BrokerRecord,
  options: ReapOptions,
  note: (action: ReapAction) => void,
): Promise<void> {
  const common = { ...describe(swept, record), pids: [] };
  if (swept.verdict !== 'stale' && swept.verdict !== 'orphan') return;
  if (options.isDryRun) return note({ ...common, action: 'retire' });
  if (record.phase === 'stopped') return;
  const end: RecordEnd = { by: 'reap', verdict: swept.verdict, at: Date.now(), generation: record.generation };
  const runtimeDir = await openRuntimeDir(options.env);
  const isRetired = await withStartLock(runtimeDir, swept.key, FIXED.lockWaitMs, async () => {
    if (isOwnerAlive(record)) return false;
    const highest = await readHighest(swept.folder);
    // With a newer run there is nothing to retire: this file goes with the old ones.
    if (highest?.generation !== record.generation) return true;
    const { broker: _broker, drainingAt: _drainingAt, ...kept } = record;
    return createRecord(swept.folder, {
      ...kept,
      generation: record.generation + 1,
      instance: randomBytes(16).toString('hex'),
      phase: 'stopped',
      starter: ownIdentity(),
      children: [],
      end,
    });
  });
  if (!isRetired) return;
  await removeSocket(record.socket);
  await removeLowerRecord(swept.folder, record.generation, record.instance);
  note({ ...common, action: 'retire' });
  await appendHistory(stateLayout(options.config.stateDir).historyFile, {
    cwd: record.cwd.path,
    instance: record.instance,
    generation: record.generation,
    startedAt: record.startedAt,
    end,
  });
}

function processKey(process: { pid: number; startTime: string }): string {
  return `${process.pid} ${process.startTime}`;
}
