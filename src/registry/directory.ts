/**
 * The identity of a directory, and what one probe of it says. A single answer never decides that a
 * directory is gone: see `confirm`.
 */
import { type BigIntStats, readlinkSync } from 'node:fs';
import { stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errnoOf } from '../errors.ts';

/** Values as decimal strings: they exceed 2^53. */
export interface DirectoryIdentity {
  dev: string;
  ino: string;
  birthtimeNs: string;
}

/** What a stat of the path gave. */
export type ProbeOutcome = { kind: 'stat'; identity: DirectoryIdentity; isDirectory: boolean } | { kind: 'error'; errno: string };

/** `ambiguous`: only the birth time differs, which an overlay copy-up does as well as a re-creation. */
export type ProbeClass = 'same' | 'gone' | 'replaced' | 'ambiguous' | 'unknown';

/** The one seam through which the state of a directory is read. */
export type StatDirectory = (path: string) => Promise<BigIntStats>;

const OVERLAYFS = 0x794c7630;

export const statDirectory: StatDirectory = (path) => stat(path, { bigint: true });

/**
 * Identity of the directory at a path.
 * @throws the system's error when it cannot be read.
 */
export async function readDirectoryIdentity(path: string, read: StatDirectory = statDirectory): Promise<DirectoryIdentity> {
  return toIdentity(await read(path));
}

/** Probes once, under a deadline; an answer that does not come is an error, not a verdict. */
export async function probeDirectory(
  path: string,
  deadlineMs: number,
  read: StatDirectory = statDirectory,
): Promise<ProbeOutcome> {
  const answer = read(path).then(
    (stats): ProbeOutcome => ({ kind: 'stat', identity: toIdentity(stats), isDirectory: stats.isDirectory() }),
    (error: unknown): ProbeOutcome => ({ kind: 'error', errno: errnoOf(error) ?? 'EUNKNOWN' }),
  );
  return withDeadline(answer, deadlineMs, { kind: 'error', errno: 'EDEADLINE' });
}

async function withDeadline<T>(answer: Promise<T>, deadlineMs: number, otherwise: T): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<T>((resolve) => {
    timer = setTimeout(() => resolve(otherwise), deadlineMs);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Classifies one outcome. Pure. `hasWitness` says whether something else saw the directory change too. */
export function classifyProbe(recorded: DirectoryIdentity, outcome: ProbeOutcome, hasWitness = false): ProbeClass {
  if (outcome.kind === 'error') return outcome.errno === 'ENOENT' || outcome.errno === 'ENOTDIR' ? 'gone' : 'unknown';
  if (!outcome.isDirectory) return 'replaced';
  const { dev, ino, birthtimeNs } = outcome.identity;
  if (ino !== recorded.ino) return 'replaced';
  if (dev !== recorded.dev) return 'unknown';
  if (birthtimeNs === recorded.birthtimeNs) return 'same';
  return hasWitness ? 'replaced' : 'ambiguous';
}

/** Equal answers so far. */
export interface Confirmation {
  answer: 'gone' | 'replaced';
  times: number;
  sinceAt: number;
}

export type Confirmed = { isGone: true } | { isGone: false; confirmation: Confirmation | undefined };

/**
 * Counts equal answers of `gone` or `replaced`; anything else starts over. Pure.
 * @param isParentReadable whether the parent, or the nearest living ancestor, was stat'ed cleanly.
 */
export function confirm(
  before: Confirmation | undefined,
  answer: ProbeClass,
  now: number,
  rule: { times: number; spanMs: number },
  isParentReadable: boolean,
): Confirmed {
  if (answer !== 'gone' && answer !== 'replaced') return { isGone: false, confirmation: undefined };
  if (before === undefined || before.answer !== answer)
    return { isGone: false, confirmation: { answer, times: 1, sinceAt: now } };
  const confirmation = { ...before, times: before.times + 1 };
  const isGone = confirmation.times >= rule.times && now - confirmation.sinceAt >= rule.spanMs && isParentReadable;
  return isGone ? { isGone } : { isGone, confirmation };
}

/** True when the nearest living ancestor answers a stat in time: the tree as such can be read. */
export async function isAncestorReadable(
  path: string,
  deadlineMs: number,
  read: StatDirectory = statDirectory,
): Promise<boolean> {
  for (let at = dirname(path); ; at = dirname(at)) {
    const outcome = await probeDirectory(at, deadlineMs, read);
    if (outcome.kind === 'stat') return true;
    if ((outcome.errno !== 'ENOENT' && outcome.errno !== 'ENOTDIR') || at === dirname(at)) return false;
  }
}

/**
 * True on overlayfs, where a copy-up changes the birth time of a directory that stays. Without an
 * answer in time the careful assumption holds: there a changed birth time proves nothing.
 */
export async function isOnOverlay(path: string, deadlineMs: number): Promise<boolean> {
  const type = statfs(path).then(
    (stats) => stats.type,
    () => OVERLAYFS,
  );
  return (await withDeadline(type, deadlineMs, OVERLAYFS)) === OVERLAYFS;
}

/** Linux: true when a process sits in this very directory and it was removed. A second witness beside the probe. */
export function sitsInDeleted(pid: number, path: string): boolean {
  try {
    return readlinkSync(`/proc/${pid}/cwd`) === `${path} (deleted)`;
  } catch (error) {
    if (errnoOf(error) !== undefined) return false;
    throw error;
  }
}

function toIdentity(stats: BigIntStats): DirectoryIdentity {
  return { dev: String(stats.dev), ino: String(stats.ino), birthtimeNs: String(stats.birthtimeNs) };
}
