/** Ends the brokers of one root because somebody asked for it: politely, then by a verified identity. */
import { setTimeout as sleep } from 'node:timers/promises';
import { askShutdown } from '../client/control-calls.ts';
import { dial } from '../client/dial.ts';
import { type Config, FIXED } from '../config.ts';
import { BrokerError } from '../errors.ts';
import { type ProcessIdentity, verifyIdentity } from '../process/identity.ts';
import type { BrokerRecord } from '../registry/record.ts';
import { readGeneration } from '../registry/records.ts';
import { reap } from './reap.ts';
import { signalBroker } from './signal-broker.ts';
import { type Swept, sweep } from './sweep.ts';

const POLL_MS = 25;

export interface StopBrokerOptions {
  config: Config;
  env: Readonly<Record<string, string | undefined>>;
  /** The registry folders to stop; all when absent. */
  keys?: readonly string[];
  /** Also end brokers that do not answer: SIGTERM, then SIGKILL. */
  isForced: boolean;
}

export interface StopResult {
  cwd: string;
  pid: number;
  generation: number;
  outcome: 'stopped' | 'not-answering' | 'still-there';
}

/** Stops every living broker that is meant. What is dead already needs no stop and is not in the result. */
export async function stopBrokers(options: StopBrokerOptions): Promise<StopResult[]> {
  const swept = await sweep({ config: options.config, ...(options.keys && { keys: options.keys }) });
  const living = swept.filter(({ facts }) => facts.broker === 'ours');
  const results = await Promise.all(living.map((one) => stopOne(one, options)));
  if (options.isForced && results.length > 0) {
    // A broker ended by force could not end its children; they are orphans now.
    await reap({ config: options.config, env: options.env, keys: [...new Set(living.map(({ key }) => key))] });
  }
  return results;
}

async function stopOne(swept: Swept, options: StopBrokerOptions): Promise<StopResult> {
  const record = swept.record as BrokerRecord;
  const broker = record.broker as ProcessIdentity;
  const result = { cwd: record.cwd.path, pid: broker.pid, generation: record.generation };
  const patienceMs = options.config.shutdownMs + FIXED.lockWaitMs;
  const answer = swept.verdict === 'draining' ? 'agreed' : await askUntilHeard(swept, record, broker, options.config);
  if (answer === 'agreed' && (await isGoneWithin(broker, patienceMs))) return { ...result, outcome: 'stopped' };
  if (answer === 'silent' && !options.isForced) {
    return { ...result, outcome: verifyIdentity(broker) === 'ours' ? 'not-answering' : 'stopped' };
  }
  // It answers, so it will end in order; only one that is silent gets little time.
  signalBroker(record, 'SIGTERM');
  if (await isGoneWithin(broker, answer === 'silent' ? FIXED.stopTermMs : patienceMs)) return { ...result, outcome: 'stopped' };
  if (!options.isForced) return { ...result, outcome: 'still-there' };
  signalBroker(record, 'SIGKILL');
  return { ...result, outcome: (await isGoneWithin(broker, FIXED.stopKillMs)) ? 'stopped' : 'still-there' };
}

/** `refused`: it answers, and speaks another protocol. */
type Answer = 'agreed' | 'refused' | 'silent';

/** Asks until it is known how things stand. One that hides or resets is on its way out, or back in a moment: look again. */
async function askUntilHeard(swept: Swept, record: BrokerRecord, broker: ProcessIdentity, config: Config): Promise<Answer> {
  const deadlineAt = performance.now() + config.helloMs;
  for (;;) {
    const answer = await ask(record, config);
    if (answer !== 'unheard') return answer;
    const found = await readGeneration(swept.folder, swept.generation);
    if (verifyIdentity(broker) !== 'ours') return 'agreed';
    if (found?.reading.kind === 'record' && found.reading.record.phase === 'draining') return 'agreed';
    if (performance.now() > deadlineAt) return 'silent';
    await sleep(POLL_MS);
  }
}

async function ask(record: BrokerRecord, config: Config): Promise<Answer | 'unheard'> {
  const dialed = await dial({ record, config, clientName: 'stop', isControl: true });
  if (dialed.kind === 'closing') return 'agreed';
  if (dialed.kind === 'refused' || dialed.kind === 'silent') return dialed.kind;
  if (dialed.kind !== 'ok') return 'unheard';
  try {
    await askShutdown(dialed.connection);
    return 'agreed';
  } catch (error) {
    if (error instanceof BrokerError) return 'unheard';
    throw error;
  } finally {
    dialed.connection.close();
  }
}

async function isGoneWithin(identity: ProcessIdentity, ms: number): Promise<boolean> {
  const deadlineAt = performance.now() + ms;
  while (verifyIdentity(identity) === 'ours') {
    if (performance.now() >= deadlineAt) return false;
    await sleep(POLL_MS);
  }
  return true;
}
