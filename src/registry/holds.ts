/** Holds: the claims of host sessions on a cwd. Take, give back, list; and is the session still there. */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { BrokerError } from '../errors.ts';
import { type ProcessIdentity, verifyIdentity } from '../process/identity.ts';
import { isSafeId, listIfThere, readIfThere, writeAtomically } from './paths.ts';

export interface Hold {
  sessionId: string;
  /** The registry folder of the cwd it holds. */
  key: string;
  cwd: string;
  /** The host session's process. */
  identity: ProcessIdentity;
  /** Epoch ms. */
  takenAt: number;
}

/** Takes a hold, or takes it again. @throws BrokerError INVALID_PARAMS for an id that may not name a file. */
export async function takeHold(holdsDir: string, hold: Hold): Promise<void> {
  const file = holdFile(holdsDir, hold.sessionId);
  await mkdir(holdsDir, { recursive: true, mode: 0o700 });
  await writeAtomically(file, JSON.stringify(hold));
}

/**
 * Gives a hold back; with `of`, only while it is still the hold of that process: a session that was
 * resumed has taken it anew.
 * @returns the hold, or undefined when there was none to give back.
 */
export async function giveBackHold(holdsDir: string, sessionId: string, of?: ProcessIdentity): Promise<Hold | undefined> {
  const file = holdFile(holdsDir, sessionId);
  const hold = parseHold(await readIfThere(file));
  if (of && (hold?.identity.pid !== of.pid || hold.identity.startTime !== of.startTime)) return undefined;
  await rm(file, { force: true });
  return hold;
}

/** All holds that can be read. */
export async function listHolds(holdsDir: string): Promise<Hold[]> {
  const names = await listIfThere(holdsDir);
  const holds: Hold[] = [];
  for (const name of names.filter((one) => one.endsWith('.json'))) {
    const hold = parseHold(await readIfThere(join(holdsDir, name)));
    if (hold && name === `${hold.sessionId}.json`) holds.push(hold);
  }
  return holds;
}

/** False only when the host session's process is proven gone. */
export function isHoldAlive(hold: Hold): boolean {
  const verdict = verifyIdentity(hold.identity);
  return verdict === 'ours' || verdict === 'unknown';
}

function holdFile(holdsDir: string, sessionId: string): string {
  if (!isSafeId(sessionId)) throw new BrokerError('INVALID_PARAMS', `not a session id: ${JSON.stringify(sessionId)}`);
  return join(holdsDir, `${sessionId}.json`);
}

function parseHold(text: string | undefined): Hold | undefined {
  if (text === undefined) return undefined;
  try {
    const value = JSON.parse(text) as Partial<Hold> | null;
    return value && isSafeId(value.sessionId) && typeof value.key === 'string' && typeof value.identity?.pid === 'number'
      ? (value as Hold)
      : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
