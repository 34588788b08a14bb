/** What every command needs of its surroundings. */
import { resolve } from 'node:path';
import { BrokerError, hasErrno } from '../errors.ts';
import { brokerKey, canonicalRoot } from '../registry/paths.ts';

/** The directory this process was started in, also when it is gone. */
export function startDirectory(): string {
  try {
    return process.cwd();
  } catch (error) {
    if (!hasErrno(error, 'ENOENT')) throw error;
    if (process.env.PWD?.startsWith('/')) return process.env.PWD;
    throw new BrokerError('NOT_FOUND', 'the current directory is gone', {
      cause: error,
      hint: 'Name a directory, or change to one.',
    });
  }
}

/** The canonical root and registry key of a directory argument, or of the current directory. */
export async function findRoot(cwd: string | undefined): Promise<{ root: string; key: string }> {
  const root = await canonicalRoot(cwd?.startsWith('/') ? cwd : resolve(startDirectory(), cwd ?? '.'));
  return { root, key: brokerKey(root) };
}

/** Writes to stdout and waits until it is taken, so that a pipe gets all of it. Whoever reads no more has had enough. */
export function print(text: string): Promise<void> {
  tolerateClosedOutput();
  return new Promise((resolve) => {
    process.stdout.write(text, () => resolve());
  });
}

/** A reader that left is no error of ours. */
export function tolerateClosedOutput(): void {
  if (process.stdout.listenerCount('error') === 0) process.stdout.on('error', () => undefined);
}
