/** The bounded list of ended brokers: one JSON line each, newest last. */
import { appendFile, stat } from 'node:fs/promises';
import { FIXED } from '../config.ts';
import { readIfThere, writeAtomically } from './paths.ts';
import type { RecordEnd } from './record.ts';

export interface HistoryEntry {
  cwd: string;
  instance: string;
  generation: number;
  /** Epoch ms. */
  startedAt: number;
  end: RecordEnd;
}

/** An entry is some 300 bytes; the file is cut when it holds about twice what is kept. */
const CUT_BYTES = FIXED.historyEntries * 600;

/** Adds one entry, and cuts the file when it has grown. An append that meets a cut may be lost: it is history, not state. */
export async function appendHistory(file: string, entry: HistoryEntry): Promise<void> {
  await appendFile(file, `${JSON.stringify(entry)}\n`, { mode: 0o600 });
  if ((await stat(file)).size <= CUT_BYTES) return;
  const entries = await readHistory(file);
  await writeAtomically(file, entries.map((one) => `${JSON.stringify(one)}\n`).join(''));
}

/** The last entries, oldest first. Lines that are not entries are skipped. */
export async function readHistory(file: string): Promise<HistoryEntry[]> {
  const lines = ((await readIfThere(file)) ?? '').split('\n');
  return lines.flatMap(parseEntry).slice(-FIXED.historyEntries);
}

function parseEntry(line: string): HistoryEntry[] {
  try {
    const value = JSON.parse(line) as Partial<HistoryEntry> | null;
    return value && typeof value.cwd === 'string' && value.end ? [value as HistoryEntry] : [];
  } catch (error) {
    if (error instanceof SyntaxError) return [];
    throw error;
  }
}
