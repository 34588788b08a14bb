/** What a reap is asked, and what it says it did. */
import type { Config } from '../config.ts';
import type { BrokerRecord } from '../registry/record.ts';
import type { Swept } from './sweep.ts';

/** What was done, or in a dry run would be done, about one record. */
export interface ReapAction {
  cwd: string;
  generation: number;
  verdict: Swept['verdict'];
  action: 'ask' | 'sigterm' | 'sigkill' | 'retire' | 'remove' | 'drop-hold';
  /** Processes it concerns. */
  pids: number[];
  /** What kept it from being done. */
  problem?: string;
}

export interface ReapOptions {
  config: Config;
  env: Readonly<Record<string, string | undefined>>;
  /** Look only at these folders. */
  keys?: readonly string[];
  /** Say what would be done, do nothing. */
  isDryRun?: boolean;
  /** How often to look again; processes that ignored SIGTERM are killed in a later pass only. */
  passes?: number;
  /** Skip what takes time to be sure of. */
  isHasty?: boolean;
  onAction?: (action: ReapAction) => void;
}

/** The part of an action that names the record. */
export function describe(swept: Swept, record: BrokerRecord): Pick<ReapAction, 'cwd' | 'generation' | 'verdict'> {
  return { cwd: record.cwd.path, generation: record.generation, verdict: swept.verdict };
}
