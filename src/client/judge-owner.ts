/**
 * Decides what a client that needs a broker does about the one on record: join it, wait for it,
 * start the next generation, or give up. Pure: facts in, action out.
 */
import type { IdentityVerdict } from '../process/identity.ts';
import type { BrokerRecord, RecordReading } from '../registry/record.ts';
import type { DialOutcome } from './dial.ts';

export interface OwnerFacts {
  /** The highest generation's record; undefined when there is none. */
  reading: RecordReading | undefined;
  /** Of the broker the record names; undefined when it names none yet. */
  broker: IdentityVerdict | undefined;
  starter: IdentityVerdict | undefined;
  /** Undefined when there was nothing to dial. */
  dialed: DialOutcome['kind'] | undefined;
  /** How long this client has been trying this very generation. */
  waitedMs: number;
  /** Epoch ms. */
  now: number;
}

export interface OwnerPolicy {
  startMs: number;
  wedgedMs: number;
  takeoverEveryMs: number;
}

export type OwnerAction =
  | { kind: 'join' }
  /** Ask again soon; `why` is what a person who waits should read, when it takes longer. */
  | { kind: 'wait'; why: 'starting' | 'silent' }
  /** Start the next generation. `isTakeover` when the present owner lives and does not answer. */
  | { kind: 'start'; isTakeover: boolean }
  /** The owner is silent and another one was passed over only lately. */
  | { kind: 'give-up' };

export function judgeOwner(facts: OwnerFacts, policy: OwnerPolicy): OwnerAction {
  const start: OwnerAction = { kind: 'start', isTakeover: false };
  if (facts.dialed === 'ok') return { kind: 'join' };
  // What cannot be read cannot be joined; the next generation is right whoever wrote it.
  if (facts.reading?.kind !== 'record') return start;
  const { record } = facts.reading;
  if (record.phase === 'stopped' || record.phase === 'draining') return start;
  // A broker that says it takes nobody, or speaks another protocol, is succeeded and leaves by itself.
  if (facts.dialed === 'closing' || facts.dialed === 'refused') return start;
  if (isDead(facts.broker)) return start;
  if (record.phase === 'starting') return judgeStarting(record, facts, policy);
  if (facts.waitedMs < policy.wedgedMs) return { kind: 'wait', why: 'silent' };
  return mayTakeOver(record, facts.now, policy) ? { kind: 'start', isTakeover: true } : { kind: 'give-up' };
}

function judgeStarting(record: BrokerRecord, facts: OwnerFacts, policy: OwnerPolicy): OwnerAction {
  if (facts.broker === undefined && isDead(facts.starter)) return { kind: 'start', isTakeover: false };
  // Waiting counts from our own clock too: clocks on a shared disk may disagree.
  const isOverdue = facts.now - record.startedAt > policy.startMs || facts.waitedMs > policy.startMs;
  return isOverdue ? { kind: 'start', isTakeover: false } : { kind: 'wait', why: 'starting' };
}

function isDead(verdict: IdentityVerdict | undefined): boolean {
  return verdict === 'dead' || verdict === 'reused';
}

function mayTakeOver(record: BrokerRecord, now: number, policy: OwnerPolicy): boolean {
  return record.tookOverAt === undefined || now - record.tookOverAt > policy.takeoverEveryMs;
}
