/** Collects the facts about every record and judges them. Changes nothing. */

import { uptime } from 'node:os';
import type { StatusResult } from '../client/control-calls.ts';
import { type Config, FIXED } from '../config.ts';
import { BrokerError, describeError, errnoOf } from '../errors.ts';
import { type IdentityVerdict, type ProcessIdentity, readHere, verifyIdentity } from '../process/identity.ts';
import { observeTree, type StopTarget } from '../process/stop.ts';
import {
  type Confirmation,
  classifyProbe,
  confirm,
  isAncestorReadable,
  type ProbeClass,
  type ProbeOutcome,
  probeDirectory,
} from '../registry/directory.ts';
import { readMachineId, stateLayout } from '../registry/paths.ts';
import type { BrokerRecord, ChildRecord } from '../registry/record.ts';
import { type FoundRecord, listGenerations, listKeys, readGeneration, recordFile, touchedAt } from '../registry/records.ts';
import { type Facts, type Judged, judgeRecord } from './verdict.ts';

/** One judged record. */
export interface Swept extends Judged {
  key: string;
  folder: string;
  generation: number;
  file: string;
  /** Of the folder's records the one with authority. */
  isHighest: boolean;
  record: BrokerRecord | undefined;
  facts: Facts;
  /** What a broker that answered says of itself. */
  status?: StatusResult;
}

export interface SweepOptions {
  config: Config;
  /** Look only at these folders. */
  keys?: readonly string[];
  /** Take the time to be sure about directories that seem gone (some 2 s). */
  isPatient?: boolean;
  /** Ask brokers that answer for their status. */
  withStatus?: boolean;
  /** Deadlines for a dial, where the config's own are too long. */
  dialMs?: number;
}

/** Judges the records of the whole registry, newest generation first within a folder. */
export async function sweep(options: SweepOptions): Promise<Swept[]> {
  const { brokersDir } = stateLayout(options.config.stateDir);
  const keys = options.keys ?? (await listKeys(brokersDir)).sort();
  const found = (await Promise.all(keys.map((key) => findRecords(options.config, key)))).flat();
  return inBatches(found, 32, (one) => judgeFound(one, options));
}

interface Found {
  key: string;
  folder: string;
  record: FoundRecord;
  isHighest: boolean;
}

async function findRecords(config: Config, key: string): Promise<Found[]> {
  const folder = stateLayout(config.stateDir).folder(key);
  const generations = await listGenerations(folder);
  const records = await Promise.all(generations.map((generation) => readTolerantly(folder, generation)));
  return records.flatMap((record) => (record ? [{ key, folder, record, isHighest: record.generation === generations[0] }] : []));
}

/** A record that the system does not let us read is reported like one that cannot be parsed. */
async function readTolerantly(folder: string, generation: number): Promise<FoundRecord | undefined> {
  try {
    return await readGeneration(folder, generation);
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
    return { generation, file: recordFile(folder, generation), reading: { kind: 'torn', why: describeError(error) } };
  }
}

async function judgeFound({ key, folder, record: found, isHighest }: Found, options: SweepOptions): Promise<Swept> {
  const { config } = options;
  const record = found.reading.kind === 'record' ? found.reading.record : undefined;
  const common = { key, folder, generation: found.generation, file: found.file, isHighest, record };
  if (record === undefined) {
    const facts = bareFacts(found);
    return { ...common, facts, ...judgeRecord(facts, config) };
  }
  const isOfHere = isRecordOfHere(record, await touchedAt(found.file));
  const broker = record.broker && verify(record.broker, isOfHere);
  const starter = verify(record.starter, isOfHere);
  const asked = broker === 'ours' && record.phase === 'serving' ? await ask(record, options) : undefined;
  const children = isOfHere && broker !== 'ours' ? await lookAtChildren(record) : { living: 0, unclear: 0 };
  const directory =
    isOfHere && record.phase !== 'stopped'
      ? await lookAtDirectory(record, options)
      : { answer: 'unknown' as const, isSure: false };
  const facts: Facts = {
    reading: found.reading,
    isOfHere,
    broker,
    starter,
    hello: asked?.hello,
    directory: directory.answer,
    isDirectorySurelyGone: directory.isSure,
    livingChildren: children.living,
    unclearChildren: children.unclear,
    now: Date.now(),
  };
  return { ...common, facts, ...judgeRecord(facts, config), ...(asked?.status && { status: asked.status }) };
}

/**
 * True when pids in the record mean something to us. A record of another boot is of this machine's
 * past, unless somebody wrote it after this boot began: then it is a machine with a copied id.
 */
function isRecordOfHere(record: BrokerRecord, touched: number): boolean {
  const { pidNamespace, bootId } = readHere();
  if (record.machineId !== readMachineId() || record.uid !== (process.getuid?.() ?? 0)) return false;
  if (record.starter.bootId === bootId) return record.starter.pidNamespace === pidNamespace;
  return Math.max(record.startedAt, touched) < Date.now() - uptime() * 1000;
}

/** What the stop ladder needs to know of a recorded child. */
export function childTarget(record: BrokerRecord, child: ChildRecord): StopTarget {
  const { pid, startTime, pgid, id, known } = child;
  return { pid, startTime, pgid, marker: `${record.instance}/${id}`, known: [...known] };
}

function verify(identity: ProcessIdentity, isOfHere: boolean): IdentityVerdict {
  return isOfHere ? verifyIdentity(identity) : 'unknown';
}

async function ask(record: BrokerRecord, options: SweepOptions): Promise<{ hello: 'ok' | 'none'; status?: StatusResult }> {
  const config =
    options.dialMs === undefined ? options.config : { ...options.config, dialMs: options.dialMs, helloMs: options.dialMs };
  // Loaded here: a sweep that finds nobody alive dials nobody.
  const [{ dial }, { askStatus }] = await Promise.all([import('../client/dial.ts'), import('../client/control-calls.ts')]);
  const dialed = await dial({ record, config, clientName: 'sweep', isControl: true });
  // One that answers that it is leaving, serves nobody new or speaks another protocol is answering.
  if (dialed.kind === 'closing' || dialed.kind === 'refused') return { hello: 'ok' };
  if (dialed.kind !== 'ok') return { hello: 'none' };
  try {
    return options.withStatus ? { hello: 'ok', status: await askStatus(dialed.connection) } : { hello: 'ok' };
  } catch (error) {
    // It may leave between hello and the question; hello stands.
    if (error instanceof BrokerError) return { hello: 'ok' };
    throw error;
  } finally {
    dialed.connection.close();
  }
}

async function lookAtChildren(record: BrokerRecord): Promise<{ living: number; unclear: number }> {
  let living = 0;
  let unclear = 0;
  for (const child of record.children) {
    // Children of an earlier boot are gone with it; their pids mean nothing now.
    const verdict = verifyIdentity({ ...record.starter, pid: child.pid, startTime: child.startTime });
    if (record.starter.bootId !== readHere().bootId) continue;
    if (verdict === 'unknown') unclear += 1;
    else if ((await observeTree(childTarget(record, child))).length > 0) living += 1;
  }
  return { living, unclear };
}

/** One look; or, when patient and the directory seems gone, as many as it takes to be sure. */
async function lookAtDirectory(record: BrokerRecord, options: SweepOptions): Promise<{ answer: ProbeClass; isSure: boolean }> {
  const rule = { times: FIXED.confirmTimes, spanMs: FIXED.confirmSpanMs };
  let confirmation: Confirmation | undefined;
  for (;;) {
    const { outcome, isParentReadable } = await probeInTurn(record.cwd.path);
    const answer = classifyProbe(record.cwd, outcome);
    const confirmed = confirm(confirmation, answer, performance.now(), rule, isParentReadable);
    if (confirmed.isGone) return { answer, isSure: true };
    confirmation = confirmed.confirmation;
    if (!options.isPatient || confirmation === undefined) return { answer, isSure: false };
    await new Promise((resolve) => setTimeout(resolve, FIXED.confirmEveryMs));
  }
}

let lastProbe: Promise<unknown> = Promise.resolve();

/** One probe after the other: four pending ones on a dead file system block every file call of the process. */
function probeInTurn(path: string): Promise<{ outcome: ProbeOutcome; isParentReadable: boolean }> {
  const next = lastProbe.then(async () => {
    const outcome = await probeDirectory(path, FIXED.probeDeadlineMs);
    const isParentReadable = outcome.kind === 'stat' || (await isAncestorReadable(path, FIXED.probeDeadlineMs));
    return { outcome, isParentReadable };
  });
  lastProbe = next;
  return next;
}

function bareFacts(found: FoundRecord): Facts {
  return {
    reading: found.reading,
    isOfHere: false,
    broker: undefined,
    starter: 'unknown',
    hello: undefined,
    directory: 'unknown',
    isDirectorySurelyGone: false,
    livingChildren: 0,
    unclearChildren: 0,
    now: Date.now(),
  };
}

async function inBatches<T, R>(items: readonly T[], size: number, run: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let at = 0; at < items.length; at += size) results.push(...(await Promise.all(items.slice(at, at + size).map(run))));
  return results;
}
