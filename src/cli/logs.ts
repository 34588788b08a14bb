/** `broker logs`: what a broker wrote to its log. */
import { open, stat } from 'node:fs/promises';
import { BrokerError, hasErrno } from '../errors.ts';
import { readIfThere, stateLayout } from '../registry/paths.ts';
import { readConfig } from '../registry/settings.ts';
import { findRoot, print } from './context.ts';

export interface LogsOptions {
  follow?: boolean;
  lines: string;
}

/** @returns 3 when the directory never had a broker. */
export async function logs(cwd: string | undefined, options: LogsOptions): Promise<number> {
  const count = Number(options.lines);
  if (!Number.isSafeInteger(count) || count < 0) {
    throw new BrokerError('USAGE', `-n takes a whole number of lines, not ${JSON.stringify(options.lines)}`);
  }
  const { root, key } = await findRoot(cwd);
  const file = stateLayout(readConfig().stateDir).log(key);
  const text = await readIfThere(file);
  if (text === undefined) {
    process.stderr.write(`broker: no log for ${root}\n`);
    return 3;
  }
  const lines = `${(await readIfThere(`${file}.1`)) ?? ''}${text}`.split('\n').slice(0, -1);
  await print(
    lines
      .slice(Math.max(0, lines.length - count))
      .map((line) => `${line}\n`)
      .join(''),
  );
  if (options.follow) await follow(file, Buffer.byteLength(text));
  return 0;
}

/** Prints what is appended, until interrupted; a rotated file is read from its start. */
async function follow(file: string, from: number): Promise<void> {
  const { watchPath } = await import('./watch.ts');
  let at = from;
  let reading: Promise<void> = Promise.resolve();
  await new Promise<void>((resolve, reject) => {
    process.stdout.on('error', () => resolve());
    const readOn = (): void => {
      reading = reading.then(async () => {
        at = await printFrom(file, at);
      });
      reading.catch(reject);
    };
    watchPath(file, 0, readOn).catch(reject);
  });
}

/** @returns where the next read begins. */
async function printFrom(file: string, from: number): Promise<number> {
  try {
    const { size } = await stat(file);
    const start = size < from ? 0 : from;
    const handle = await open(file, 'r');
    try {
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(size - start), 0, size - start, start);
      await print(buffer.subarray(0, bytesRead).toString('utf8'));
      return start + bytesRead;
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return 0;
    throw error;
  }
}
