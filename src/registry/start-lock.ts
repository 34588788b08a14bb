/**
 * Who may start, publish, retire or hide the broker of a root right now. It only saves work: the
 * proof of ownership is the generation, so a wait for the lock is bounded and what it guards is
 * right without it.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { FIXED } from '../config.ts';
import { errnoOf, hasErrno } from '../errors.ts';
import { ownIdentity, type ProcessIdentity, verifyIdentity } from '../process/identity.ts';
import { readIfThere, writeAtomically } from './paths.ts';

/**
 * Runs `body` while holding the lock, or without it when it cannot be had within `waitMs`. The body
 * must be short and never wait for another process.
 */
export async function withStartLock<T>(runtimeDir: string, key: string, waitMs: number, body: () => Promise<T>): Promise<T> {
  const release = await acquire(join(runtimeDir, key.slice(-12)), waitMs);
  try {
    return await body();
  } finally {
    await release?.();
  }
}

async function acquire(target: string, waitMs: number): Promise<(() => Promise<void>) | undefined> {
  const { lock } = (await import('proper-lockfile')).default;
  const ownerFile = `${target}.owner`;
  const deadlineAt = performance.now() + waitMs;
  for (;;) {
    let isLost = false;
    try {
      const unlock = await lock(target, {
        realpath: false,
        stale: FIXED.lockStaleMs,
        retries: 0,
        // The default throws inside a timer and ends the process.
        onCompromised: () => {
          isLost = true;
        },
      });
      await writeOwner(ownerFile);
      return async () => {
        if (!isLost) await rm(ownerFile, { force: true });
        await unlock().catch(ignoreLostLock);
      };
    } catch (error) {
      if (!hasErrno(error, 'ELOCKED')) return undefined;
    }
    // A holder that died will not let go; its lock ages out and is taken over by some later starter.
    if (performance.now() >= deadlineAt || (await isOwnerDead(ownerFile))) return undefined;
    await sleep(5 + Math.random() * 15);
  }
}

async function writeOwner(file: string): Promise<void> {
  try {
    await writeAtomically(file, JSON.stringify(ownIdentity()));
  } catch (error) {
    // Without an owner file a dead holder is noticed by age instead.
    if (errnoOf(error) === undefined) throw error;
  }
}

async function isOwnerDead(file: string): Promise<boolean> {
  const text = await readIfThere(file);
  if (text === undefined) return false;
  const owner = parseOwner(text);
  const verdict = owner && verifyIdentity(owner);
  return verdict === 'dead' || verdict === 'reused';
}

/** Undefined for anything but a whole identity: what cannot be read proves nobody dead. */
function parseOwner(text: string): ProcessIdentity | undefined {
  try {
    const value = JSON.parse(text) as Partial<ProcessIdentity> | null;
    const isWhole =
      Number.isSafeInteger(value?.pid) &&
      [value?.startTime, value?.bootId, value?.pidNamespace].every((one) => typeof one === 'string');
    return isWhole ? (value as ProcessIdentity) : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** A lock that was taken over or removed meanwhile cannot be released, and need not be. */
function ignoreLostLock(error: unknown): void {
  if (!hasErrno(error, 'ERELEASED', 'ENOTACQUIRED', 'ENOENT')) throw error;
}
