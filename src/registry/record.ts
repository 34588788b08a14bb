/** The shape of a record, one file about one run of a broker, and its strict reading. */
import type { ProcessIdentity } from '../process/identity.ts';
import type { KnownProcess } from '../process/tree.ts';
import type { DirectoryIdentity } from './directory.ts';

/** Grows when older code could misread a record. */
export const RECORD_SCHEMA = 1;

export const PHASES = ['starting', 'serving', 'draining', 'stopped'] as const;
export type Phase = (typeof PHASES)[number];

/** In order of priority. The same words stand in code, log, record, history, CLI and README. */
export const EXIT_REASONS = ['signal', 'requested', 'cwd-gone', 'fatal', 'socket-lost', 'superseded', 'idle'] as const;
export type ExitReason = (typeof EXIT_REASONS)[number];

/** One child process, written before it runs. */
export interface ChildRecord extends KnownProcess {
  /** Unique within one broker run. */
  id: string;
  kind: 'upstream';
  pgid: number;
  command: string[];
  /** Epoch ms. */
  startedAt: number;
  /** Group members and descendants seen while they were provably its own. */
  known: KnownProcess[];
}

/** How a run ended: by itself with a reason, or retired by a reap that found it dead. */
export type RecordEnd =
  | { by: 'broker'; reason: ExitReason; at: number; detail?: string }
  | { by: 'reap'; verdict: 'stale' | 'orphan' | 'cwd-gone'; at: number; generation: number };

export interface BrokerRecord {
  schema: number;
  generation: number;
  /** Random id of this run; guards every write and every removal. */
  instance: string;
  /** Random secret that hello has to show. */
  token: string;
  phase: Phase;
  machineId: string;
  uid: number;
  /** Who created the record; it may be gone long since. */
  starter: ProcessIdentity;
  /** Absent until the broker itself has written it. */
  broker?: ProcessIdentity;
  script: string;
  version: string;
  protocol: number;
  cwd: { path: string } & DirectoryIdentity;
  socket: string;
  /** Epoch ms. */
  startedAt: number;
  /** When `draining` began, epoch ms. */
  drainingAt?: number;
  /** When a silent owner of this cwd was last passed over, epoch ms; carried from run to run. */
  tookOverAt?: number;
  children: ChildRecord[];
  /** Present exactly in a tombstone (phase `stopped`). */
  end?: RecordEnd;
}

export type RecordReading =
  | { kind: 'record'; record: BrokerRecord }
  /** Not a whole record: cut off, or not ours. */
  | { kind: 'torn'; why: string }
  /** Written by a newer version. */
  | { kind: 'newer'; schema: number };

/** Parses a record file. Never throws: what cannot be read is reported and left alone. Pure. */
export function parseRecord(text: string): RecordReading {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { kind: 'torn', why: error instanceof SyntaxError ? 'not valid JSON' : String(error) };
  }
  if (!isObject(value) || typeof value.schema !== 'number') return { kind: 'torn', why: 'no schema' };
  if (value.schema > RECORD_SCHEMA) return { kind: 'newer', schema: value.schema };
  const wrong = Object.entries(SHAPE).find(([name, isRight]) => !isRight(value[name]));
  if (wrong) return { kind: 'torn', why: `bad field: ${wrong[0]}` };
  if ((value.phase === 'stopped') !== (value.end !== undefined)) return { kind: 'torn', why: 'bad field: end' };
  return { kind: 'record', record: value as unknown as BrokerRecord };
}

type Check = (value: unknown) => boolean;

const isText: Check = (value) => typeof value === 'string';
const isCount: Check = (value) => typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
const isPid: Check = (value) => isCount(value) && (value as number) > 1;
const optional =
  (check: Check): Check =>
  (value) =>
    value === undefined || check(value);
const shaped =
  (fields: Record<string, Check>): Check =>
  (value) =>
    isObject(value) && Object.entries(fields).every(([name, check]) => check(value[name]));
const listOf =
  (check: Check): Check =>
  (value) =>
    Array.isArray(value) && value.every(check);

/** Shaped, and with a relation between fields that always holds: the gate makes each child the leader of its group. */
const allOf =
  (relation: (value: Record<string, unknown>) => boolean, fields: Record<string, Check>): Check =>
  (value) =>
    shaped(fields)(value) && relation(value as Record<string, unknown>);

const IDENTITY = shaped({ pid: isPid, startTime: isText, bootId: isText, pidNamespace: isText });
const KNOWN = { pid: isPid, startTime: isText };

const SHAPE: Record<keyof BrokerRecord, Check> = {
  schema: isCount,
  generation: (value) => isCount(value) && (value as number) > 0,
  instance: (value) => isText(value) && /^[a-z0-9]{16,64}$/.test(value as string),
  token: isText,
  phase: (value) => (PHASES as readonly unknown[]).includes(value),
  machineId: isText,
  uid: isCount,
  starter: IDENTITY,
  broker: optional(IDENTITY),
  script: isText,
  version: isText,
  protocol: isCount,
  cwd: shaped({ path: isText, dev: isText, ino: isText, birthtimeNs: isText }),
  socket: isText,
  startedAt: isCount,
  drainingAt: optional(isCount),
  tookOverAt: optional(isCount),
  children: listOf(
    allOf(({ pid, pgid }) => pid === pgid, {
      ...KNOWN,
      id: isText,
      kind: (value) => value === 'upstream',
      pgid: isPid,
      command: listOf(isText),
      startedAt: isCount,
      known: listOf(shaped(KNOWN)),
    }),
  ),
  end: optional(
    (value) =>
      isObject(value) &&
      isCount(value.at) &&
      ((value.by === 'broker' && (EXIT_REASONS as readonly unknown[]).includes(value.reason)) ||
        (value.by === 'reap' && isText(value.verdict))),
  ),
};

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
