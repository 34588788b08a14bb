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
import { errnoOf, hasErrno } from '../errors.ts';
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

/** What a stop needs to know of a child. `known` grows as its descendants are seen. */
export interface StopTarget extends KnownProcess {
  pgid: number;
  /** `instance/child`: a group member is ours when its marker ends with this. */
  marker: string;
  /** Group members and descendants seen while they were provably ours. */
  known: KnownProcess[];
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

/** Looks at the tree of a child and remembers, in `target.known`, whom it sees. */
export async function observeTree(target: StopTarget): Promise<KnownProcess[]> {
  const living = splitTree(target, await listProcesses());
  return [...living.members, ...living.outside].map(({ pid, startTime }) => ({ pid, startTime }));
}

/**
 * Remembers who is in the group of a leader that has ended this very moment: its number cannot have
 * been used again, since a group keeps it for as long as it has members. Later nobody could tell.
 */
export async function adoptGroup(target: StopTarget): Promise<void> {
  remember(target, groupMembers(await listProcesses(), target.pgid));
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
 * at SIGTERM. Every step is taken, also while the system lets nobody look at processes; the report
 * then says that it is not known to be stopped.
 */
export async function stopTree(target: StopTarget, times: StopTimes, endStdin?: () => void): Promise<StopReport> {
  await look(target);
  if (endStdin) {
    endStdin();
    if (await isGoneWithin(target, times.stdinMs)) return { isStopped: true, step: 'stdin', survivors: [] };
  }
  if ((await trySignalTree(target, 'SIGTERM'))?.length === 0) return { isStopped: true, step: 'none', survivors: [] };
  if (await isGoneWithin(target, times.termMs)) return { isStopped: true, step: 'term', survivors: [] };
  await trySignalTree(target, 'SIGKILL');
  const isStopped = await isGoneWithin(target, times.killMs);
  return { isStopped, step: 'kill', survivors: isStopped ? [] : ((await look(target)) ?? [target]) };
}

/** As `observeTree`; undefined when the system does not let us look (no descriptor, no memory). */
async function look(target: StopTarget): Promise<KnownProcess[] | undefined> {
  try {
    return await observeTree(target);
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
    return undefined;
  }
}

/** As `signalTree`; where nobody can look, the group is signalled as long as its leader proves to be the recorded one. */
async function trySignalTree(target: StopTarget, signal: NodeJS.Signals): Promise<KnownProcess[] | undefined> {
  try {
    return await signalTree(target, signal);
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
    if (leads(target)) sendSignal(-target.pgid, signal);
    return undefined;
  }
}

/** True once the group is empty (zombies do not count) and nobody who left it is alive. */
async function isGoneWithin(target: StopTarget, ms: number): Promise<boolean> {
  const deadlineAt = performance.now() + ms;
  for (let pauseMs = 10; ; pauseMs = Math.min(pauseMs * 1.5, 100)) {
    if (isSurelyGone(target) || (await look(target))?.length === 0) return true;
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
    return hasErrno(error, 'ESRCH') && !target.known.some(mayBeStill);
  }
}

function splitTree(target: StopTarget, table: readonly ProcessEntry[]): Living {
  const leaderLives = leads(target);
  const isKnown = (entry: ProcessEntry): boolean =>
    target.known.some((known) => known.pid === entry.pid && known.startTime === entry.startTime);
  const group = groupMembers(table, target.pgid);
  // While its leader lives a group cannot be anybody else's; afterwards a member has to prove itself.
  // One is proof for all: a group cannot be joined from outside its session, nor its number be used again while it lives.
  const isProven = leaderLives || group.some((entry) => isKnown(entry) || readMarker(entry.pid) === target.marker);
  const members = isProven ? group : [];
  const isBelow = (entry: ProcessEntry): boolean => !isBoundary(entry, target);
  const below = descendantsOf(table, [target, ...members, ...target.known], (entry) => !isBelow(entry));
  const outside = new Map<number, ProcessEntry>();
  // Known or not: a process that was seen while it was becoming a broker is a boundary all the same.
  for (const entry of [...below, ...table.filter((one) => isKnown(one) && isBelow(one))]) {
    if (entry.pgid !== target.pgid) outside.set(entry.pid, entry);
  }
  remember(target, [...members, ...outside.values()]);
  return { group, members, outside: [...outside.values()] };
}

/** Keeps who is ours while it can be told; those that are dead need not be kept. */
function remember(target: StopTarget, ours: readonly ProcessEntry[]): void {
  const fresh = ours.filter(
    ({ pid }) => pid !== target.pid && !target.known.some((known) => known.pid === pid && isStill(known)),
  );
  if (fresh.length === 0) return;
  const kept = target.known.filter(mayBeStill);
  target.known = [...kept, ...fresh.map(({ pid, startTime }) => ({ pid, startTime }))];
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

/** True while the recorded leader lives and still leads the recorded group. */
function leads(target: StopTarget): boolean {
  const observation = observe(target.pid);
  return observation.state === 'alive' && observation.startTime === target.startTime && observation.pgid === target.pgid;
}

/** False only when it is proven gone. */
function mayBeStill(known: KnownProcess): boolean {
  const observation = observe(known.pid);
  return observation.state === 'unreadable' || (observation.state === 'alive' && observation.startTime === known.startTime);
}
