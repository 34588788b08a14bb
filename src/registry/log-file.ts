/** The log file of one broker: appended to, rotated once, never a reason to fail. */
import { closeSync, fstatSync, openSync, renameSync, writeSync } from 'node:fs';
import { errnoOf } from '../errors.ts';

/**
 * Opens a log of at most `maxBytes`; the older half of the story stays in `<file>.1`. A disk that is
 * full or a file that vanished costs lines, nothing else.
 */
export function openLogFile(file: string, maxBytes: number): { write(line: string): void; close(): void } {
  let descriptor = tryOpen(file);
  let isClosed = false;
  let size = descriptor === undefined ? 0 : fstatSync(descriptor).size;
  const release = (): void => {
    if (descriptor !== undefined) closeSync(descriptor);
    descriptor = undefined;
  };
  const rotate = (): void => {
    release();
    try {
      renameSync(file, `${file}.1`);
    } catch (error) {
      if (errnoOf(error) === undefined) throw error;
    }
    descriptor = tryOpen(file);
    size = 0;
  };
  return {
    write(line) {
      if (isClosed) return;
      const bytes = Buffer.byteLength(line);
      if (size + bytes > maxBytes) rotate();
      if (descriptor === undefined) return;
      try {
        writeSync(descriptor, line);
        size += bytes;
      } catch (error) {
        if (errnoOf(error) === undefined) throw error;
      }
    },
    close() {
      isClosed = true;
      release();
    },
  };
}

function tryOpen(file: string): number | undefined {
  try {
    return openSync(file, 'a', 0o600);
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
    return undefined;
  }
}
