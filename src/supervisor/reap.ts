/**
 * Acts on verdicts: asks, stops, then retires. The only place that does. Everything that is signalled
 * or removed is verified again right before, since the sweep that judged it is history by then.
 *
 * Not touched, whatever else is wrong: brokers that answer or are alive in a directory that exists,
 * records that cannot be read, and whatever belongs to another machine, namespace or user.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Config, FIXED } from '../config.ts';
import { BrokerError, describeError, errnoOf } from '../errors.ts';
import { ownIdentity, verifyIdentity } from '../process/identity.ts';
import { signalTree } from '../process/stop.ts';
import type { KnownProcess } from '../process/tree.ts';
import { classifyProbe, probeDirectory } from '../registry/directory.ts';
import { appendHistory } from '../registry/history.ts';
import { openRuntimeDir, stateLayout } from '../registry/paths.ts';
import type { BrokerRecord, RecordEnd } from '../registry/record.ts';
import { createRecord, readGeneration, readHighest, removeLowerRecord, removeSockets } from '../registry/records.ts';
import { withStartLock } from '../registry/start-lock.ts';
import { describe, type ReapAction, type ReapOptions } from './reap-action.ts';
import { signalBroker } from './signal-broker.ts';
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
  const reaping = new Reaping(options, note);
  const passes = options.isDryRun ? 1 : (options.passes ?? FIXED.reapPasses);
  for (let pass = 1; ; pass += 1) {
    const swept = await sweepFor(options);
    const isUnfinished = await reaping.pass(swept);
    if (!isUnfinished || pass >= passes) {
      await dropDeadHolds(options, note);
      await tidy(swept, options, note);
      return { actions, isUnfinished };
    }
    await sleep(FIXED.reapPauseMs);
  }
}

function sweepFor(options: ReapOptions): Promise<Swept[]> {
  return sweep({
    config: options.config,
    isPatient: !options.isHasty,
    ...(options.keys && { keys: options.keys }),
    ...(options.isHasty && { dialMs: FIXED.hookBudgetMs / 3 }),
  });
}

/** Alive in a directory that seems gone: somebody with more time has to be sure of it. */
function needsPatience({ facts }: Swept): boolean {
  return (
    facts.broker === 'ours' && !facts.isDirectorySurelyGone && (facts.directory === 'gone' || facts.directory === 'replaced')
  );
}

/** A record that is judged `stale`, `orphan` or `cwd-gone`, with what was judged. */
interface Case {
  swept: Swept;
  record: BrokerRecord;
}

/** What one reap remembers from pass to pass: who was told to end, and whose children it had to end. */
class Reaping {
  readonly #options: ReapOptions;
  readonly #note: (action: ReapAction) => void;
  /** Sent SIGTERM, by pid and start time: in this pass, and in earlier ones. */
  readonly #termed = new Set<string>();
  #termedBefore: ReadonlySet<string> = new Set();
  readonly #orphaned = new Set<string>();

  constructor(options: ReapOptions, note: (action: ReapAction) => void) {
    this.#options = options;
    this.#note = note;
  }

  /** Acts on every record once. @returns true when it has to be looked at again. */
  async pass(swept: readonly Swept[]): Promise<boolean> {
    this.#termedBefore = new Set(this.#termed);
    let isUnfinished = false;
    for (const one of swept) {
      if (!REAPED.has(one.verdict) || one.record === undefined) isUnfinished ||= needsPatience(one);
      else isUnfinished = (await this.#act({ swept: one, record: one.record })) || isUnfinished;
    }
    return isUnfinished;
  }

  async #act(one: Case): Promise<boolean> {
    try {
      if (one.swept.verdict === 'cwd-gone') return await this.#endBroker(one);
      if (one.swept.verdict === 'orphan' && (await this.#endChildren(one))) return true;
      return !(await this.#retire(one));
    } catch (error) {
      // What one record meets (a full disk, a folder of somebody else's) must not keep the others.
      if (!(error instanceof BrokerError) && errnoOf(error) === undefined) throw error;
      this.#report(one, 'retire', [], describeError(error));
      return true;
    }
  }

  /** A broker whose directory is gone: ask it, else SIGTERM, and SIGKILL when an earlier pass's SIGTERM was ignored. */
  async #endBroker(one: Case): Promise<boolean> {
    const { broker } = one.record;
    if (broker === undefined) return false;
    const signal = this.#nextSignal(broker);
    if (this.#options.isDryRun) {
      this.#report(one, 'sigterm', [broker.pid]);
      return false;
    }
    if (signal === 'SIGTERM' && (await askToLeave(one.record, this.#options.config))) {
      this.#report(one, 'ask', [broker.pid]);
      return true;
    }
    const sent = await this.#locked(one, async () => {
      const problem = await verifyCwdGone(one);
      if (problem !== undefined) return problem;
      // From here to the signal nothing is awaited: nothing can come between check and signal.
      return signalBroker(one.record, signal);
    });
    this.#termed.add(processKey(broker));
    const problem = sent === 'sent' || sent === 'gone' ? undefined : sent;
    this.#report(one, signal === 'SIGKILL' ? 'sigkill' : 'sigterm', [broker.pid], problem);
    return true;
  }

  /** Children whose broker is gone: SIGTERM, and in a later pass SIGKILL. @returns true while any is left. */
  async #endChildren(one: Case): Promise<boolean> {
    let isAnyLeft = false;
    for (const child of one.record.children) {
      if (this.#options.isDryRun) {
        this.#report(one, 'sigterm', [child.pid]);
        continue;
      }
      if (isOwnerAlive(one.record)) return true;
      const signal = this.#nextSignal(child);
      const pids = (await signalTree(childTarget(one.record, child), signal)).map(({ pid }) => pid);
      if (pids.length === 0) continue;
      this.#termed.add(processKey(child));
      isAnyLeft = true;
      this.#report(one, signal === 'SIGKILL' ? 'sigkill' : 'sigterm', pids);
    }
    if (isAnyLeft) this.#orphaned.add(one.swept.file);
    return isAnyLeft;
  }

  /** Closes the book on a dead run: a tombstone as the next generation, its socket gone, its old file gone. */
  async #retire(one: Case): Promise<boolean> {
    const { swept, record } = one;
    // A tombstone whose children have been ended has nothing to close.
    if (record.phase === 'stopped') return true;
    if (this.#options.isDryRun) {
      this.#report(one, 'retire', []);
      return true;
    }
    const verdict = this.#orphaned.has(swept.file) ? 'orphan' : 'stale';
    const end: RecordEnd = { by: 'reap', verdict, at: Date.now(), generation: record.generation };
    if (!(await this.#locked(one, () => buryDead(one, end)))) return false;
    await removeSockets(record);
    await removeLowerRecord(swept.folder, record.generation, record.instance);
    this.#report(one, 'retire', []);
    await appendHistory(stateLayout(this.#options.config.stateDir).historyFile, {
      cwd: record.cwd.path,
      instance: record.instance,
      generation: record.generation,
      startedAt: record.startedAt,
      end,
    });
    return true;
  }

  #nextSignal(process: KnownProcess): 'SIGTERM' | 'SIGKILL' {
    return this.#termedBefore.has(processKey(process)) ? 'SIGKILL' : 'SIGTERM';
  }

  async #locked<T>(one: Case, body: () => Promise<T>): Promise<T> {
    return withStartLock(await openRuntimeDir(this.#options.env), one.swept.key, FIXED.lockWaitMs, body);
  }

  #report(one: Case, action: ReapAction['action'], pids: number[], problem?: string): void {
    this.#note({ ...describe(one.swept, one.record), action, pids, ...(problem !== undefined && { problem }) });
  }
}

async function askToLeave(record: BrokerRecord, config: Config): Promise<boolean> {
  if (record.phase !== 'serving') return false;
  const [{ dial }, { askShutdown }] = await Promise.all([import('../client/dial.ts'), import('../client/control-calls.ts')]);
  const dialed = await dial({ record, config, clientName: 'reap', isControl: true });
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
async function verifyCwdGone({ swept, record }: Case): Promise<string | undefined> {
  const found = await readGeneration(swept.folder, swept.generation);
  if (found?.reading.kind !== 'record' || found.reading.record.instance !== record.instance)
    return 'its record changed meanwhile';
  const answer = classifyProbe(record.cwd, await probeDirectory(record.cwd.path, FIXED.probeDeadlineMs));
  return answer === 'gone' || answer === 'replaced' ? undefined : `its directory is ${answer} now`;
}

function isOwnerAlive(record: BrokerRecord): boolean {
  const verdict = record.broker && verifyIdentity(record.broker);
  return record.phase !== 'stopped' && (verdict === 'ours' || verdict === 'unknown');
}

/**
 * Under the start lock: links the tombstone, if the run is dead and still the last one. The record
 * is read again, since its broker may have come up after the sweep had looked.
 * @returns false when it lives, or somebody else was first.
 */
async function buryDead({ swept, record }: Case, end: RecordEnd): Promise<boolean> {
  const found = await readGeneration(swept.folder, swept.generation);
  if (found?.reading.kind !== 'record' || found.reading.record.instance !== record.instance) return false;
  const fresh = found.reading.record;
  if (isOwnerAlive(fresh) || fresh.children.length > record.children.length) return false;
  const highest = await readHighest(swept.folder);
  // With a newer run there is nothing to close: this file goes with the old ones.
  if (highest?.generation !== record.generation) return true;
  const { randomBytes } = process.getBuiltinModule('node:crypto');
  const { broker: _broker, drainingAt: _drainingAt, ...kept } = fresh;
  return createRecord(swept.folder, {
    ...kept,
    generation: record.generation + 1,
    instance: randomBytes(16).toString('hex'),
    phase: 'stopped',
    starter: ownIdentity(),
    children: [],
    end,
  });
}

function processKey(process: KnownProcess): string {
  return `${process.pid} ${process.startTime}`;
}
