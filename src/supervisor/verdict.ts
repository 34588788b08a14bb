/**
 * Judges one record from collected facts. Pure: it looks at nothing itself and changes nothing.
 *
 * A broker that is alive and has nothing to do is `live` like any other: no jobs running is not
 * evidence that it is dead. What cannot be known is `unknown` and is left alone.
 */
import type { IdentityVerdict } from '../process/identity.ts';
import type { ProbeClass } from '../registry/directory.ts';
import type { RecordReading } from '../registry/record.ts';

export const VERDICTS = [
  'live',
  'starting',
  'draining',
  'stopped',
  'cwd-gone',
  'stale',
  'orphan',
  'wedged',
  'foreign',
  'unknown',
] as const;
export type Verdict = (typeof VERDICTS)[number];

export interface Facts {
  reading: RecordReading;
  /** The record was written on this machine, in this pid namespace, by this user. */
  isOfHere: boolean;
  /** Of the broker the record names; undefined when it names none yet. */
  broker: IdentityVerdict | undefined;
  starter: IdentityVerdict;
  /** What a dial gave; undefined when it was not tried. */
  hello: 'ok' | 'none' | undefined;
  /** One look at the directory. */
  directory: ProbeClass;
  /** The answer `gone` or `replaced` was confirmed over time. */
  isDirectorySurelyGone: boolean;
  /** Children the record names that are alive. */
  livingChildren: number;
  /** Children that may be alive: their identity cannot be read. */
  unclearChildren: number;
  /** Epoch ms. */
  now: number;
}

export interface VerdictPolicy {
  startMs: number;
  shutdownMs: number;
}

/** The verdict, and why in a few words. */
export interface Judged {
  verdict: Verdict;
  why: string;
}

export function judgeRecord(facts: Facts, policy: VerdictPolicy): Judged {
  const { reading } = facts;
  if (reading.kind === 'torn') return { verdict: 'unknown', why: `the record cannot be read: ${reading.why}` };
  if (reading.kind === 'newer') return { verdict: 'unknown', why: `written by a newer version (schema ${reading.schema})` };
  if (!facts.isOfHere) return { verdict: 'foreign', why: 'of another machine, pid namespace or user' };
  const { record } = reading;
  if (record.phase === 'stopped')
    return judgeTombstone(facts, record.end?.by === 'broker' ? record.end.reason : record.end?.verdict);
  if (facts.broker === undefined && record.phase === 'starting' && facts.now - record.startedAt <= policy.startMs) {
    // Its broker may be on its way, whatever has become of the one who started it.
    return { verdict: 'starting', why: 'starting' };
  }
  const owner = facts.broker ?? (record.phase === 'starting' ? facts.starter : undefined);
  if (owner === 'dead' || owner === 'reused') return judgeDead(facts, owner);
  if (owner !== 'ours') return { verdict: 'unknown', why: 'its process cannot be identified' };
  return judgeAlive(facts, record, policy);
}

function judgeTombstone(facts: Facts, ended: string | undefined): Judged {
  if (facts.livingChildren > 0)
    return { verdict: 'orphan', why: `ended (${ended}) and left ${facts.livingChildren} of its children` };
  return { verdict: 'stopped', why: `ended: ${ended}` };
}

function judgeDead(facts: Facts, owner: 'dead' | 'reused'): Judged {
  const why = owner === 'dead' ? 'its process is gone' : 'its pid belongs to another process now';
  if (facts.livingChildren > 0) return { verdict: 'orphan', why: `${why}; ${facts.livingChildren} of its children live` };
  if (facts.unclearChildren > 0) return { verdict: 'unknown', why: `${why}; a child of it cannot be identified` };
  return { verdict: 'stale', why };
}

function judgeAlive(facts: Facts, record: Extract<RecordReading, { kind: 'record' }>['record'], policy: VerdictPolicy): Judged {
  if (facts.isDirectorySurelyGone) return { verdict: 'cwd-gone', why: `its directory is ${facts.directory}` };
  if (record.phase === 'draining') {
    const ms = facts.now - (record.drainingAt ?? record.startedAt);
    return ms > policy.shutdownMs
      ? { verdict: 'wedged', why: `leaving for ${seconds(ms)}` }
      : { verdict: 'draining', why: 'leaving' };
  }
  if (record.phase === 'starting') {
    const ms = facts.now - record.startedAt;
    return ms > policy.startMs
      ? { verdict: 'wedged', why: `starting for ${seconds(ms)}` }
      : { verdict: 'starting', why: 'starting' };
  }
  if (facts.hello === 'ok') return { verdict: 'live', why: directoryNote(facts.directory) };
  return { verdict: 'wedged', why: 'alive, and does not answer hello' };
}

function directoryNote(directory: ProbeClass): string {
  if (directory === 'same') return 'answers';
  return directory === 'unknown' ? 'answers; its directory cannot be looked at' : `answers; its directory looks ${directory}`;
}

function seconds(ms: number): string {
  return `${Math.round(ms / 1000)} s`;
}
