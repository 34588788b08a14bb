/**
 * Lists, reads, writes and removes records by generation. A generation is created by an exclusive
 * `link()`, so exactly one starter wins it, and it is never reused. Writes go only to a file that
 * still names the writer's own instance.
 */
import { link, lstat, readdir, rename, rm, unlink, utimes, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { BrokerError, describeError, hasErrno } from '../errors.ts';
import { listIfThere, readIfThere, socketNames, writeAtomically } from './paths.ts';
import { type BrokerRecord, parseRecord, type RecordReading } from './record.ts';

/** A record file as found. */
export interface FoundRecord {
  generation: number;
  file: string;
  reading: RecordReading;
}

/** Generations in a folder, highest first; empty when there is no folder. */
export async function listGenerations(folder: string): Promise<number[]> {
  const names = await listIfThere(folder);
  return names
    .flatMap((name) => /^([1-9]\d{0,8})\.json$/.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => b - a);
}

/** Reads one generation; undefined when it is not there. */
export async function readGeneration(folder: string, generation: number): Promise<FoundRecord | undefined> {
  const file = recordFile(folder, generation);
  const text = await readIfThere(file);
  if (text === undefined) return undefined;
  const reading = parseRecord(text);
  if (reading.kind === 'record' && reading.record.generation !== generation) {
    return { generation, file, reading: { kind: 'torn', why: 'names another generation' } };
  }
  return { generation, file, reading };
}

/** The record with authority: the highest generation. Undefined when the folder has none. */
export async function readHighest(folder: string): Promise<FoundRecord | undefined> {
  for (const generation of await listGenerations(folder)) {
    const found = await readGeneration(folder, generation);
    if (found) return found;
  }
  return undefined;
}

/**
 * Publishes a record under its generation, whole or not at all.
 * @returns false when another starter has that generation.
 * @throws BrokerError STORE_FAILED.
 */
export async function createRecord(folder: string, record: BrokerRecord): Promise<boolean> {
  const temp = join(folder, `.${record.instance}.tmp`);
  try {
    // Not synced to disk: a record means nothing after the boot it was written in.
    await writeFile(temp, JSON.stringify(record), { mode: 0o600, flag: 'wx' });
    return await linkOnce(temp, recordFile(folder, record.generation));
  } catch (error) {
    throw new BrokerError('STORE_FAILED', `cannot write a record in ${folder}: ${describeError(error)}`, {
      cause: error,
      hint: 'Check free space and permissions of the state dir.',
    });
  } finally {
    await rm(temp, { force: true });
  }
}

/** Replaces a record by a new version of itself. @throws BrokerError STORE_FAILED when the file names another run. */
export async function updateRecord(folder: string, record: BrokerRecord): Promise<void> {
  const found = await readGeneration(folder, record.generation);
  if (found?.reading.kind === 'record' && found.reading.record.instance !== record.instance) {
    throw new BrokerError('STORE_FAILED', `generation ${record.generation} in ${folder} names another run`);
  }
  try {
    await writeAtomically(recordFile(folder, record.generation), JSON.stringify(record));
  } catch (error) {
    throw new BrokerError('STORE_FAILED', `cannot write the record in ${folder}: ${describeError(error)}`, { cause: error });
  }
}

/** Marks a record as still in use, so that nobody takes the folder for abandoned. */
export async function touchRecord(folder: string, generation: number): Promise<void> {
  const now = new Date();
  await utimes(recordFile(folder, generation), now, now);
}

/**
 * Removes a lower generation, whose broker and children the caller has proven dead.
 * The highest generation stays for good: it keeps its number from being used again.
 */
export async function removeLowerRecord(folder: string, generation: number, instance: string): Promise<void> {
  const [highest] = await listGenerations(folder);
  if (highest === undefined || generation >= highest) return;
  const found = await readGeneration(folder, generation);
  if (found?.reading.kind !== 'record' || found.reading.record.instance !== instance) return;
  await removeIfThere(found.file);
}

/**
 * Removes the sockets of a run that is proven dead: the one its record names, and those it may have
 * been bound to or hidden under. A path that is not named after the run is not touched.
 */
export async function removeSockets(record: Pick<BrokerRecord, 'socket' | 'generation' | 'instance'>): Promise<void> {
  const names = socketNames(dirname(record.socket), record.generation, record.instance);
  if (names.public !== record.socket) return;
  for (const name of Object.values(names)) await removeSocket(name);
}

/** Removes a socket of our own; anything else at that path stays. */
export async function removeSocket(path: string): Promise<void> {
  try {
    if (!(await lstat(path)).isSocket()) return;
  } catch (error) {
    if (hasErrno(error, 'ENOENT', 'ENOTDIR')) return;
    throw error;
  }
  await removeIfThere(path);
}

/** When anything in a folder was last written or touched, epoch ms. */
export async function lastTouched(folder: string): Promise<number> {
  const names = await readdir(folder);
  const times = await Promise.all([folder, ...names.map((name) => join(folder, name))].map(touchedAt));
  return Math.max(...times);
}

/** When a file was last written or touched, epoch ms; 0 for one that went meanwhile. */
export async function touchedAt(path: string): Promise<number> {
  try {
    return (await lstat(path)).mtimeMs;
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return 0;
    throw error;
  }
}

/** Removes an abandoned folder with its log, if its highest record still is the given one. */
export async function removeFolder(
  folder: string,
  generation: number,
  instance: string,
  logsDir: string,
  key: string,
): Promise<void> {
  // Set aside first: a generation that somebody creates from here on is in a folder of its own.
  const aside = `${folder}.${instance.slice(0, 12)}.gone`;
  await rename(folder, aside);
  const found = await readHighest(aside);
  if (found?.generation !== generation || found.reading.kind !== 'record' || found.reading.record.instance !== instance) {
    await rename(aside, folder);
    return;
  }
  await rm(aside, { recursive: true, force: true });
  for (const name of [`${key}.log`, `${key}.log.1`]) await rm(join(logsDir, name), { force: true });
}

/** The keys of all folders in the registry. */
export async function listKeys(brokersDir: string): Promise<string[]> {
  return (await listIfThere(brokersDir)).filter((name) => /^[A-Za-z0-9_-]+$/.test(name));
}

/** Path of a record. */
export function recordFile(folder: string, generation: number): string {
  return join(folder, `${generation}.json`);
}

async function removeIfThere(file: string): Promise<void> {
  try {
    await unlink(file);
  } catch (error) {
    if (!hasErrno(error, 'ENOENT')) throw error;
  }
}

async function linkOnce(temp: string, file: string): Promise<boolean> {
  try {
    await link(temp, file);
    return true;
  } catch (error) {
    if (!hasErrno(error, 'EEXIST')) throw error;
    // On network file systems link() may report a failure after it has worked: a second name tells.
    return (await lstat(temp)).nlink === 2;
  }
}
