/**
 * Ends a child and all that is provably its own: end of stdin, SIGTERM, SIGKILL. The only place
 * that signals another process, and never a number: each signal follows a check of pid and start
 * time in the same synchronous turn.
 *
 * What belongs to a child: its process group, and outside the group only descendants whose parent
 * chain is unbroken or was recorded while unbroken. What merely inherited the marker was detached
 * on purpose by some tool and is not touched here.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { hasErrno } from '../errors.ts';
import { observe, type ProcessIdentity, verifyIdentity } from './identity.ts';
import {
  descendantsOf,
  groupMembers,
  isBrokerDaemon,
  type KnownProcess,
  listProcesses,
  type ProcessEntry,
  readMarker,
} from './tree.ts';

/** What a stop needs to know of a child. `escaped` grows as descendants are seen outside the group. */
export interface StopTarget extends KnownProcess {
  pgid: number;
  /** `instance/child`: a group member is ours when its marker ends with this. */
  marker: string;
  escaped: KnownProcess[];
}

export interface StopTimes {
  stdinMs: number;
  termMs: number;
  killMs: number;
}

export interface StopReport {
  isStopped: boolean;
  /** The last step that was needed. */
  step: 'none' | 'stdin' | 'term' | 'kill';
  survivors: KnownProcess[];
}

/** What is alive of a child, split by how it is reached. */
interface Living {
  group: ProcessEntry[];
  /** Group members that are provably ours. */
  members: ProcessEntry[];
  outside: ProcessEntry[];
}

/**
 * Sends a signal to a pid, or to a group when negative. `gone` means there was nobody, `refused`
 * that somebody is there and not ours to signal.
 */
export function sendSignal(pid: number, signal: NodeJS.Signals): 'sent' | 'gone' | 'refused' {
  try {
    process.kill(pid, signal);
    return 'sent';
  } catch (error) {
    if (hasErrno(error, 'ESRCH')) return 'gone';
    if (hasErrno(error, 'EPERM')) return 'refused';
    throw error;
  }
}

/** Signals one process, only if it still is the recorded one. Synchronous from check to signal. */
export function signalIdentity(identity: ProcessIdentity, signal: NodeJS.Signals): 'sent' | 'gone' | 'refused' {
  const verdict = verifyIdentity(identity);
  if (verdict === 'dead' || verdict === 'reused') return 'gone';
  return verdict === 'ours' ? sendSignal(identity.pid, signal) : 'refused';
}

/** Looks at the tree of a child and remembers, in `target.escaped`, whoever left its group. */
export async function observeTree(target: StopTarget): Promise<KnownProcess[]> {
  const living = splitTree(target, await listProcesses());
  return [...living.members, ...living.outside].map(({ pid, startTime }) => ({ pid, startTime }));
}

/**
 * Sends one signal to all that is alive of a child.
 * @returns the processes it was meant for; empty when nothing is left.
 */
export async function signalTree(target: StopTarget, signal: NodeJS.Signals): Promise<KnownProcess[]> {
  const { group, members, outside } = splitTree(target, await listProcesses());
  if (members.length > 0 && members.length === group.length && members.some(isStill)) {
    sendSignal(-target.pgid, signal);
  } else {
    for (const member of members) if (isStill(member)) sendSignal(member.pid, signal);
  }
  for (const one of outside) if (isStill(one)) sendSignal(one.pid, signal);
  return [...members, ...outside].map(({ pid, startTime }) => ({ pid, startTime }));
}

/**
 * Runs the whole ladder. `endStdin` is absent where there is no pipe to end: the ladder then starts
 * at SIGTERM. Always returns within the sum of the times plus the cost of looking.
 */
export async function stopTree(target: StopTarget, times: StopTimes, endStdin?: () => void): Promise<StopReport> {
  await observeTree(target);
  if (endStdin) {
    endStdin();
    if (await isGoneWithin(target, times.stdinMs)) return { isStopped: true, step: 'stdin', survivors: [] };
  }
  if ((await signalTree(target, 'SIGTERM')).length === 0) return { isStopped: true, step: 'none', survivors: [] };
  if (await isGoneWithin(target, times.termMs)) return { isStopped: true, step: 'term', survivors: [] };
  await signalTree(target, 'SIGKILL');
  const isStopped = await isGoneWithin(target, times.killMs);
  return { isStopped, step: 'kill', survivors: isStopped ? [] : await observeTree(target) };
}

/** True once the group is empty (zombies do not count) and nobody who left it is alive. */
async function isGoneWithin(target: StopTarget, ms: number): Promise<boolean> {
  const deadlineAt = performance.now() + ms;
  for (let pauseMs = 10; ; pauseMs = Math.min(pauseMs * 1.5, 100)) {
    if (isSurelyGone(target) || (await observeTree(target)).length === 0) return true;
    const leftMs = deadlineAt - performance.now();
    if (leftMs <= 0) return false;
    await sleep(Math.min(pauseMs, leftMs));
  }
}

/** The cheap answer: the kernel knows no such group, and everyone else recorded is dead. */
function isSurelyGone(target: StopTarget): boolean {
  try {
    process.kill(-target.pgid, 0);
    return false;
  } catch (error) {
    return hasErrno(error, 'ESRCH') && !target.escaped.some(isStill);
  }
}

function splitTree(target: StopTarget, table: readonly ProcessEntry[]): Living {
  const leaderLives = isStill(target);
  const isKnown = (entry: ProcessEntry): boolean =>
    target.escaped.some((known) => known.pid === entry.pid && known.startTime === entry.startTime);
  const group = groupMembers(table, target.pgid);
  // While its leader lives a group cannot be anybody else's; afterwards each member has to prove itself.
  const members = leaderLives ? group : group.filter((entry) => isKnown(entry) || readMarker(entry.pid) === target.marker);
  const below = descendantsOf(table, [target, ...members, ...target.escaped], (entry) => isBoundary(entry, target));
  const outside = new Map<number, ProcessEntry>();
  for (const entry of [...below, ...table.filter(isKnown)]) {
    if (entry.pgid !== target.pgid) outside.set(entry.pid, entry);
  }
  for (const entry of outside.values()) {
    if (!isKnown(entry)) target.escaped.push({ pid: entry.pid, startTime: entry.startTime });
  }
  return { group, members, outside: [...outside.values()] };
}

/** Another broker, and whatever another broker's child started, is not ours although it may hang below our child. */
function isBoundary(entry: ProcessEntry, target: StopTarget): boolean {
  if (isBrokerDaemon(entry.pid)) return true;
  const marker = readMarker(entry.pid);
  return marker !== undefined && marker !== target.marker;
}

function isStill(known: KnownProcess): boolean {
  const observation = observe(known.pid);
  return observation.state === 'alive' && observation.startTime === known.startTime;
}
