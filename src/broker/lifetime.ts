/**
 * Decides when the broker exits. Nothing else does.
 *
 * One pure function, called after every change and by the one timer. It says to stay, to ask again
 * at a certain time, or to exit; it never remembers anything, so a timer can not act on what was true
 * when it was armed. When the timer fires late the process was stopped or starved, and clients may
 * be waiting at the socket unseen: it asks once more after a while, and only once in a quiet period,
 * since a machine that thrashes must not make a broker immortal.
 */
import type { ExitReason } from '../registry/record.ts';

/** The state of the broker that matters for its end. Instants are of one monotonic clock, in ms. */
export interface Vitals {
  /** Clients bound to an upstream, those that our own children started left out. */
  attachedClients: number;
  /** When each client that has not attached yet said hello, ours left out as well. */
  helloAt: readonly number[];
  /** Live holds of host sessions: when each was taken. */
  holdsTakenAt: readonly number[];
  /** When the last hold of the cwd was given back, if nobody has needed the broker since. */
  lastHoldGivenBackAt: number | undefined;
  /** Since when nobody needs the broker; undefined while somebody does. */
  quietSinceAt: number | undefined;
  /** A wish to end that does not depend on need. */
  stop: Exclude<ExitReason, 'superseded' | 'idle'> | undefined;
  /** A higher generation owns the root. */
  isSuperseded: boolean;
  /** How late the timer fired that leads to this question; 0 when no timer did. */
  latenessMs: number;
  /** Until when this quiet period has its second chance; undefined when it has had none. */
  secondChanceUntilAt: number | undefined;
}

export interface LifetimePolicy {
  graceMs: number;
  heldGraceMs: number;
  helloCountsMs: number;
  /** 0: holds do not keep the broker. */
  holdMs: number;
  latenessMs: number;
  lateRecheckMs: number;
}

export type Judgement =
  /** Needed; `recheckAt` where a reason runs out by time alone. */
  | { kind: 'stay'; reasons: string[]; recheckAt?: number }
  /** Not needed, and the wait is not over. */
  | { kind: 'recheck'; at: number; isSecondChance: boolean }
  | { kind: 'exit'; reason: ExitReason };

export function judge(vitals: Vitals, policy: LifetimePolicy, now: number): Judgement {
  if (vitals.stop) return { kind: 'exit', reason: vitals.stop };
  const needs = findNeeds(vitals, policy, now);
  if (needs.reasons.length > 0) return { kind: 'stay', ...needs };
  if (vitals.isSuperseded) return { kind: 'exit', reason: 'superseded' };
  const dueAt = findDueAt(vitals, policy, now);
  if (now < dueAt) return { kind: 'recheck', at: dueAt, isSecondChance: false };
  if (vitals.secondChanceUntilAt !== undefined && now < vitals.secondChanceUntilAt) {
    return { kind: 'recheck', at: vitals.secondChanceUntilAt, isSecondChance: false };
  }
  if (vitals.latenessMs > policy.latenessMs && vitals.secondChanceUntilAt === undefined) {
    return { kind: 'recheck', at: now + policy.lateRecheckMs, isSecondChance: true };
  }
  return { kind: 'exit', reason: 'idle' };
}

/** True when somebody needs the broker now; what `quietSinceAt` follows. */
export function isNeeded(vitals: Vitals, policy: LifetimePolicy, now: number): boolean {
  return findNeeds(vitals, policy, now).reasons.length > 0;
}

function findNeeds(vitals: Vitals, policy: LifetimePolicy, now: number): { reasons: string[]; recheckAt?: number } {
  const reasons: string[] = [];
  const ends: number[] = [];
  if (vitals.attachedClients > 0) reasons.push(`${count(vitals.attachedClients, 'client')} attached`);
  const fresh = vitals.helloAt.map((at) => at + policy.helloCountsMs).filter((at) => at > now);
  if (fresh.length > 0) reasons.push(`${count(fresh.length, 'client')} said hello just now`);
  ends.push(...fresh);
  // A hold from the future (the wall clock was set back) counts from now.
  const held = vitals.holdsTakenAt.map((at) => Math.min(at, now) + policy.holdMs).filter((at) => at > now);
  if (held.length > 0) reasons.push(`held by ${count(held.length, 'host session')}`);
  ends.push(...held);
  return { reasons, ...(ends.length > 0 && { recheckAt: Math.min(...ends) }) };
}

/** The end of the grace; a shorter one when the last host session has just let go. */
function findDueAt(vitals: Vitals, policy: LifetimePolicy, now: number): number {
  const quietSinceAt = vitals.quietSinceAt ?? now;
  const dueAt = quietSinceAt + policy.graceMs;
  if (vitals.lastHoldGivenBackAt === undefined) return dueAt;
  return Math.min(dueAt, Math.max(quietSinceAt, vitals.lastHoldGivenBackAt) + policy.heldGraceMs);
}

function count(number: number, what: string): string {
  return `${number} ${what}${number === 1 ? '' : 's'}`;
}
