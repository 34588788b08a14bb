/** Signals the broker of a record, and nothing else. */
import { signalIdentity } from '../process/stop.ts';
import { readCommandLine } from '../process/tree.ts';
import type { BrokerRecord } from '../registry/record.ts';

/**
 * Start time decides; that the process was started for this very run is checked beside it, where
 * that can be read. Synchronous from check to signal.
 */
export function signalBroker(
  record: BrokerRecord,
  signal: NodeJS.Signals,
): 'sent' | 'gone' | 'refused' | 'it runs something else' {
  if (record.broker === undefined) return 'gone';
  const words = readCommandLine(record.broker.pid);
  if (words !== undefined && !words.includes(record.instance)) return 'it runs something else';
  return signalIdentity(record.broker, signal);
}
